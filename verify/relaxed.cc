#include "verify/relaxed.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "verify/tolerant_walk.h"

namespace paceline {

template <typename Real>
RelaxedMatch<Real>::RelaxedMatch(const Distribution<Real>& row, const RuleOptions& options,
                                 RuleMemory* memory)
    : row_(row) {
  const std::span<const Real> probs = row.probs();
  LentRow lent(memory);
  std::vector<double>& ranked = lent.Resize(probs.size());
  std::copy(probs.begin(), probs.end(), ranked.begin());
  const size_t count = std::min<size_t>(options.relaxed_top_n, ranked.size());
  std::nth_element(ranked.begin(), ranked.begin() + count - 1, ranked.end(), std::greater<>());
  last_prob_ = static_cast<Real>(ranked[count - 1]);
  // Of those that are as likely as the last one, the first so many of the row are within the count.
  auto equal = std::count(ranked.begin(), ranked.begin() + count, last_prob_);
  size_t last = 0;
  while (probs[last] != last_prob_ || --equal > 0) ++last;
  last_id_ = row.IdAt(last);
  const Real largest = *std::max_element(probs.begin(), probs.end());
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
        return [match = RelaxedMatch<Real>(row, input.options, input.memory)](int32_t token) {
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
