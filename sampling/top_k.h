// Stage `top_k`: keeps the k most likely tokens.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0 and -1.
bool TopKActive(const SamplingOptions& options);

// Keeps the first k of the rank order (value descending, id ascending), at least min_keep; with
// Ties::kValue also everything equal to the last of them. k beyond the vocabulary keeps all.
template <typename Real>
void ApplyTopK(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context);

}  // namespace paceline
