#include "sampling/top_p.h"

#include <cmath>

namespace paceline {
namespace {

constexpr double kEqualMass = 1e-7;
constexpr int64_t kFirstLook =
    64;  // Tokens ranked at first; doubled while the mass does not suffice.

}  // namespace

bool TopPActive(const SamplingOptions& options) { return options.top_p < 1; }

template <typename Real>
void ApplyTopP(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  const double mass = candidates.Mass();
  if (mass == 0) return;
  const Real max = candidates.Max();
  const double limit = options.top_p_compare == TopPCompare::kLess ? options.top_p - kEqualMass
                                                                   : options.top_p + kEqualMass;
  double sum = 0;          // Mass of the tokens ranked before this one.
  double mass_before = 0;  // The same, less those equal to it where ties are by value.
  int64_t keep = 0;
  for (int64_t look = kFirstLook;; look *= 2) {
    const auto ranked = candidates.Ranked(look);
    for (; keep < static_cast<int64_t>(ranked.size()); ++keep) {
      const bool tied = keep > 0 && ranked[keep].logit == ranked[keep - 1].logit;
      if (options.ties == Ties::kRank || !tied) mass_before = sum;
      const bool below =
          options.top_p_compare == TopPCompare::kLess ? mass_before < limit : mass_before <= limit;
      if (!below && keep >= options.min_keep) return candidates.KeepRanked(keep);
      sum += std::exp(ranked[keep].logit - max) / mass;
    }
    if (static_cast<int64_t>(ranked.size()) < look) return;
  }
}

template void ApplyTopP<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTopP<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
