// Goodness of fit of counted outcomes to their exact probabilities.
#pragma once

#include <boost/math/special_functions/gamma.hpp>
#include <cstdint>
#include <map>
#include <vector>

namespace paceline::testing {

struct ChiSquare {
  double statistic = 0;
  int64_t degrees = 0;
  double p_value = 1;
};

// Pearson's test of `counts` against `law`, whose probabilities sum to 1. Outcomes expected fewer
// than five times are pooled. An outcome that the law says cannot be has p-value 0.
template <typename Outcome>
ChiSquare ChiSquareTest(const std::map<Outcome, int64_t>& counts,
                        const std::map<Outcome, double>& law) {
  int64_t total = 0;
  for (const auto& [outcome, count] : counts) {
    total += count;
    if (count > 0 && !law.contains(outcome)) return {0, 0, 0};
  }
  ChiSquare result;
  double pooled_expected = 0;
  double pooled_count = 0;
  const auto add = [&](double expected, double count) {
    result.statistic += (count - expected) * (count - expected) / expected;
    ++result.degrees;
  };
  for (const auto& [outcome, probability] : law) {
    const auto found = counts.find(outcome);
    const double count = found == counts.end() ? 0.0 : static_cast<double>(found->second);
    const double expected = probability * static_cast<double>(total);
    if (expected >= 5) {
      add(expected, count);
    } else {
      pooled_expected += expected;
      pooled_count += count;
    }
  }
  if (pooled_expected > 0) add(pooled_expected, pooled_count);
  if (--result.degrees > 0) {
    result.p_value =
        boost::math::gamma_q(static_cast<double>(result.degrees) / 2, result.statistic / 2);
  }
  return result;
}

}  // namespace paceline::testing
