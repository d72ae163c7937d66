#include "sampling/top_n_sigma.h"

#include <algorithm>
#include <cmath>

namespace paceline {

bool TopNSigmaActive(const SamplingOptions& options) { return options.top_n_sigma > 0; }

template <typename Real>
void ApplyTopNSigma(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext&) {
  const double max = candidates.Max();
  double count = 0, sum = 0, squares = 0;  // Of logits less the largest.
  candidates.ForEach([&](int32_t, Real logit) {
    const double below = logit - max;
    ++count, sum += below, squares += below * below;
  });
  if (count == 0) return;
  const double mean = sum / count;
  const double deviation = std::sqrt(std::max(0.0, squares / count - mean * mean));
  candidates.KeepAtLeast(static_cast<Real>(max - options.top_n_sigma * deviation),
                         options.min_keep);
}

template void ApplyTopNSigma<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTopNSigma<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
