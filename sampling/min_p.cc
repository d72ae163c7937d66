#include "sampling/min_p.h"

namespace paceline {
bool MinPActive(const SamplingOptions& options) { return options.min_p > 0; }

template <typename Real>
void ApplyMinP(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  candidates.KeepShare(options.min_p, options.min_keep);
}

template void ApplyMinP<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyMinP<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
