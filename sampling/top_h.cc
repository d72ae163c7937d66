#include "sampling/top_h.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace paceline {
namespace {

constexpr int64_t kLooked = 100;

}  // namespace

bool TopHActive(const SamplingOptions& options) { return options.top_h > 0; }

template <typename Real>
void ApplyTopH(Candidates<Real>& candidates, const SamplingOptions& options, const RowContext&) {
  const auto ranked = candidates.Ranked(kLooked);
  if (ranked.empty()) return;
  std::vector<double> terms;  // exp(logit - max), then its part of the entropy.
  double mass = 0;
  for (const auto& entry : ranked) mass += terms.emplace_back(std::exp(entry.logit - ranked[0].logit));
  double total = 0;
  for (double& term : terms) {
    const double prob = term / mass;
    total += term = prob > 0 ? -prob * std::log(prob) : 0;
  }
  double partial = 0;
  int64_t count = 0;
  while (count < std::ssize(terms) && partial + terms[count] <= options.top_h * total) {
    partial += terms[count++];
  }
  candidates.KeepRanked(std::max<int64_t>(count, options.min_keep));
}

template void ApplyTopH<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTopH<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
