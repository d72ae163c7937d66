#include "sampling/cutoff.h"

#include <algorithm>
#include <cmath>

namespace paceline {
bool EpsilonCutoffActive(const SamplingOptions& options) { return options.epsilon_cutoff > 0; }
bool EtaCutoffActive(const SamplingOptions& options) { return options.eta_cutoff > 0; }

template <typename Real>
void ApplyEpsilonCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                        const RowContext&) {
  candidates.KeepShare(options.epsilon_cutoff * candidates.Mass(), options.min_keep);
}

template <typename Real>
void ApplyEtaCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext&) {
  const double eta = options.eta_cutoff;
  const double prob = std::min(eta, std::sqrt(eta) * std::exp(-candidates.Entropy()));
  candidates.KeepShare(prob * candidates.Mass(), options.min_keep);
}

template void ApplyEpsilonCutoff<float>(Candidates<float>&, const SamplingOptions&,
                                        const RowContext&);
template void ApplyEpsilonCutoff<double>(Candidates<double>&, const SamplingOptions&,
                                         const RowContext&);
template void ApplyEtaCutoff<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyEtaCutoff<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
