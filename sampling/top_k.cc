#include "sampling/top_k.h"

#include <algorithm>

namespace paceline {

bool TopKActive(const SamplingOptions& options) { return options.top_k > 0; }

template <typename Real>
void ApplyTopK(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  const int64_t keep = std::max(options.top_k, options.min_keep);
  const auto ranked = candidates.Ranked(keep);
  if (static_cast<int64_t>(ranked.size()) < keep) return;
  if (options.ties == Ties::kRank) return candidates.KeepRanked(keep);
  candidates.KeepAtLeast(ranked.back().logit, options.min_keep);
}

template void ApplyTopK<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTopK<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
