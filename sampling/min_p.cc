#include "sampling/min_p.h"

#include <cmath>

namespace paceline {
namespace {

constexpr double kEqualLogit = 1e-7;

}  // namespace

bool MinPActive(const SamplingOptions& options) { return options.min_p > 0; }

template <typename Real>
void ApplyMinP(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  const double threshold = candidates.Max() + std::log(options.min_p) - kEqualLogit;
  candidates.KeepAtLeast(static_cast<Real>(threshold), options.min_keep);
}

template void ApplyMinP<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyMinP<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
