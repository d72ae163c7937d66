#include "sampling/cutoff.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

constexpr double kEqualLogit = 1e-7;

template <typename Real>
void KeepAbove(Candidates<Real>& candidates, double prob, int64_t min_keep) {
  const double threshold = candidates.Max() + std::log(prob * candidates.Mass()) - kEqualLogit;
  candidates.KeepAtLeast(static_cast<Real>(threshold), min_keep);
}

}  // namespace

bool EpsilonCutoffActive(const SamplingOptions& options) { return options.epsilon_cutoff > 0; }
bool EtaCutoffActive(const SamplingOptions& options) { return options.eta_cutoff > 0; }

template <typename Real>
void ApplyEpsilonCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                        const RowContext&) {
  KeepAbove(candidates, options.epsilon_cutoff, options.min_keep);
}

template <typename Real>
void ApplyEtaCutoff(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext&) {
  const double eta = options.eta_cutoff;
  KeepAbove(candidates, std::min(eta, std::sqrt(eta) * std::exp(-candidates.Entropy())),
            options.min_keep);
}

template void ApplyEpsilonCutoff<float>(Candidates<float>&, const SamplingOptions&,
                                        const RowContext&);
template void ApplyEpsilonCutoff<double>(Candidates<double>&, const SamplingOptions&,
                                         const RowContext&);
template void ApplyEtaCutoff<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyEtaCutoff<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
