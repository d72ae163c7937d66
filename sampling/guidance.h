// Stage `guidance`: moves the row away from one that did not see the prompt.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 1.
bool GuidanceActive(const SamplingOptions& options);

// l = lsm(u) + g (lsm(c) - lsm(u)), lsm = log-softmax, c the row, u the unconditional one
// (RowContext::unconditional). A token masked in c stays so; one that only u excludes takes lsm(c).
// Without an unconditional row nothing happens. Cost: two passes over each row. Source: Sanchez et al.
// 2023; algorithms B.4.
template <typename Real>
void ApplyGuidance(Candidates<Real>& candidates, const SamplingOptions& options,
                   const RowContext& context);

}  // namespace paceline
