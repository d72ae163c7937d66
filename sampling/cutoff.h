// Stages `epsilon_cutoff` and `eta_cutoff`: drop tokens below a probability.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0.
bool EpsilonCutoffActive(const SamplingOptions& options);
bool EtaCutoffActive(const SamplingOptions& options);

// Keeps p >= e. At least min_keep stay. A probability within 1e-7 of the threshold, relatively,
// counts as reaching it. Source: Hewitt et al. 2022.
template <typename Real>
void ApplyEpsilonCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                        const RowContext& context);

// Keeps p >= min(e, sqrt(e) exp(-H)), H the entropy of the current row in nats.
template <typename Real>
void ApplyEtaCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context);

}  // namespace paceline
