#include "sampling/top_p.h"

namespace paceline {
namespace {

constexpr double kEqualMass = 1e-7;

}  // namespace

bool TopPActive(const SamplingOptions& options) { return options.top_p < 1; }

template <typename Real>
void ApplyTopP(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  const bool inclusive = options.top_p_compare == TopPCompare::kLessOrEqual;
  const double share = options.top_p + (inclusive ? kEqualMass : -kEqualMass);
  candidates.KeepMass({share * candidates.Mass(), inclusive, options.ties == Ties::kValue},
                      options.min_keep);
}

template void ApplyTopP<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTopP<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
