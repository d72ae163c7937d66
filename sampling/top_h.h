// Stage `top_h`: keeps the likeliest tokens up to a share of their entropy.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0.
bool TopHActive(const SamplingOptions& options);

// Of the 100 likeliest tokens, renormalised, keeps the longest rank prefix whose partial entropy
// -sum p log p is at most top_h times that of all 100; at least min_keep. Cost: that of ranking 100
// tokens. Source: Potraghloo et al. 2025 (bounded entropy); algorithms B.4.
template <typename Real>
void ApplyTopH(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context);

}  // namespace paceline
