// Stage `top_p`: keeps the smallest set of most likely tokens with mass P.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 1.
bool TopPActive(const SamplingOptions& options);

// In rank order, keeps a token while the mass before it is below P (TopPCompare::kLessOrEqual: not
// above P): the token that crosses P stays. At least min_keep stay. Ties::kValue takes for "before"
// what is strictly more likely. Mass is of the current row, renormalised, in double; a mass within
// 1e-7 of P counts as equal to it, since float32 logits are no more exact than that. Source:
// Holtzman et al. 2020.
template <typename Real>
void ApplyTopP(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context);

}  // namespace paceline
