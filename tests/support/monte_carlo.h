// Sizes and tolerances of tests that count outcomes.
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline::testing {

// `streams`, or a tenth of them where a sanitizer checks every access.
constexpr int32_t NumStreams(int32_t streams) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return streams / 10;
#else
  return streams;
#endif
}

// Four standard deviations of the share of an event of probability `prob` in `trials` trials.
inline double ShareTolerance(double prob, double trials) {
  return 4 * std::sqrt(prob * (1 - prob) / trials);
}

}  // namespace paceline::testing
