// Stage `typical_p`: locally typical sampling.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 1.
bool TypicalPActive(const SamplingOptions& options);

// In the order of s = |-log p - H|, ties by id, H the entropy of the row: adds up p.
// TypicalMode::kHf stops at the first token where the sum is not below m and keeps everything with
// s up to its own; kLlama stops where the sum is above m and keeps exactly those. At least min_keep
// stay, in that order. Cost: linear. Source: Meister et al. 2023.
template <typename Real>
void ApplyTypicalP(Candidates<Real>& candidates, const SamplingOptions& options,
                   const RowContext& context);

}  // namespace paceline
