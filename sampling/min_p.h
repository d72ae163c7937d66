// Stage `min_p`: keeps what is not too far below the most likely token.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0.
bool MinPActive(const SamplingOptions& options);

// Keeps tokens with probability >= M times the largest one (inclusive; within 1e-7 counts as
// equal), at least min_keep. Cost: one comparison a token, no sort. Source: Nguyen et al. 2024.
template <typename Real>
void ApplyMinP(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context);

}  // namespace paceline
