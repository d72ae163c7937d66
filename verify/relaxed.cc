#include "verify/relaxed.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "verify/tolerant_walk.h"

namespace paceline {

template <typename Real>
RelaxedMatch<Real>::RelaxedMatch(const Distribution<Real>& row, const RuleOptions& options)
    : row_(row) {
  std::vector<std::pair<Real, int32_t>> ranked;
  for (size_t i = 0; i < row.probs().size(); ++i) ranked.push_back({row.probs()[i], row.IdAt(i)});
  const auto by_rank = [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  };
  const size_t count = std::min<size_t>(options.relaxed_top_n, ranked.size());
  std::nth_element(ranked.begin(), ranked.begin() + count - 1, ranked.end(), by_rank);
  std::tie(last_prob_, last_id_) = ranked[count - 1];
  const Real largest = std::max_element(ranked.begin(), ranked.begin() + count)->first;
  // Rows are rounded to Real: so is the limit.
  const Real lowest = static_cast<Real>(largest - options.relaxed_delta);
  if (last_prob_ >= lowest) return;
  last_prob_ = lowest;
  last_id_ = row.vocab_size();
}

template <typename Real>
bool RelaxedMatch<Real>::Accepts(int32_t token) const {
  const Real prob = row_.Prob(token);
  return prob > 0 && (prob > last_prob_ || (prob == last_prob_ && token <= last_id_));
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyRelaxed(const RuleInput<Real>& input) {
  return WalkTolerantly(
      input,
      [&](const Distribution<Real>& row) {
        return [match = RelaxedMatch<Real>(row, input.options)](int32_t token) {
          return match.Accepts(token);
        };
      },
      [](const Distribution<Real>& row) -> const Distribution<Real>& { return row; });
}

#define PACELINE_INSTANTIATE(Real)    \
  template class RelaxedMatch<Real>;  \
  template absl::StatusOr<VerifyOutcome> VerifyRelaxed(const RuleInput<Real>&);

PACELINE_INSTANTIATE(float)
PACELINE_INSTANTIATE(double)
#undef PACELINE_INSTANTIATE

}  // namespace paceline
