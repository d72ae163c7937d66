// Stage `top_n_sigma`: keeps logits within n standard deviations of the largest.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0.
bool TopNSigmaActive(const SamplingOptions& options);

// Keeps l >= max - n sd, sd the population deviation over unmasked logits, in double; at least
// min_keep stay. The kept set does not depend on the temperature. Source: Tang et al. 2024.
template <typename Real>
void ApplyTopNSigma(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context);

}  // namespace paceline
