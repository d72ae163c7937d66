#include "verify/typical.h"

#include <algorithm>
#include <cmath>

#include "verify/tolerant_walk.h"

namespace paceline {
namespace {

constexpr double kInsideLog = 1e-5;

template <typename Real>
absl::StatusOr<VerifyOutcome> Walk(const RuleInput<Real>& input, bool draw) {
  return WalkTolerantly(
      input,
      [&](const Distribution<Real>& row) {
        return [&row, threshold = TypicalThreshold(row, input.options)](int32_t token) {
          return row.Prob(token) > threshold;
        };
      },
      [&](const Distribution<Real>& row) {
        return draw ? row : Distribution<Real>::OneHot(row.Argmax(), row.vocab_size());
      });
}

}  // namespace

template <typename Real>
double TypicalThreshold(const Distribution<Real>& row, const RuleOptions& options) {
  double entropy = 0;
  for (const double prob : row.probs()) entropy -= prob * std::log(prob + kInsideLog);
  return std::min(options.typical_epsilon, options.typical_delta * std::exp(-entropy));
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyTypical(const RuleInput<Real>& input) {
  if (input.options.typical_draw) return Walk(input, true);
  LargestWeight largest;
  return Walk(WithRandomness(input, largest), false);
}

#define PACELINE_INSTANTIATE(Real)                                                       \
  template double TypicalThreshold(const Distribution<Real>&, const RuleOptions&);       \
  template absl::StatusOr<VerifyOutcome> VerifyTypical(const RuleInput<Real>&);

PACELINE_INSTANTIATE(float)
PACELINE_INSTANTIATE(double)
#undef PACELINE_INSTANTIATE

}  // namespace paceline
