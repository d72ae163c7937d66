// Sizes and tolerances of tests that count outcomes.
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline::testing {

#if defined(__has_feature)  // clang
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// `streams`, or a tenth of them where a sanitizer checks every access.
constexpr int32_t NumStreams(int32_t streams) { return kSanitized ? streams / 10 : streams; }

// Four standard deviations of the share of an event of probability `prob` in `trials` trials.
inline double ShareTolerance(double prob, double trials) {
  return 4 * std::sqrt(prob * (1 - prob) / trials);
}

}  // namespace paceline::testing
