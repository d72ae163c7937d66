// Stage `penalties`: repetition, then frequency and presence.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: repetition 1, frequency 0, presence 0.
bool PenaltiesActive(const SamplingOptions& options);

// Once for every distinct token in scope: l > 0 ? l / r : l * r; then l -= f * count + s. The
// history is the row's own, drafted ancestors counted as output. Works on a dense row; a masked
// token stays masked. Cost: O(distinct tokens), from the committed counts and the drafted
// ancestors. Source: Keskar et al. 2019 (repetition).
template <typename Real>
void ApplyPenalties(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context);

}  // namespace paceline
