#include "sampling/mirostat2.h"

#include <cmath>
#include <numbers>

namespace paceline {

bool Mirostat2Active(const SamplingOptions& options) { return options.mirostat_tau > 0; }

template <typename Real>
void ApplyMirostat2(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context) {
  const double mass = candidates.Mass();
  if (mass == 0) return;
  const double least = std::log(mass) - context.mirostat_mu * std::numbers::ln2;
  candidates.KeepAtLeast(static_cast<Real>(candidates.Max() + least), options.min_keep);
}

double FirstMu(const SamplingOptions& options) { return 2 * options.mirostat_tau; }

double NextMu(const SamplingOptions& options, double mu, double prob) {
  if (!(prob > 0)) return mu;
  return mu - options.mirostat_eta * (-std::log2(prob) - options.mirostat_tau);
}

template void ApplyMirostat2<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyMirostat2<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
