// Rows of logits of every size and kind that tests of stages and rules go through.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace paceline::testing {

inline constexpr int32_t kRowSizes[] = {1, 3, 111, 49152, 128256};
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Peaked as a language model's rows are; one value; two fifths masked; many equal; all but one
// masked.
enum class RowKind { kPeaked, kFlat, kMasked, kTied, kOneLeft };
inline constexpr RowKind kRowKinds[] = {RowKind::kPeaked, RowKind::kFlat, RowKind::kMasked,
                                        RowKind::kTied, RowKind::kOneLeft};

inline std::vector<float> LargeRow(RowKind kind, int32_t size, uint64_t seed) {
  std::vector<float> logits;
  for (int32_t id = 0; id < size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    logits.push_back(static_cast<float>(-2.5 * std::log(-std::log(u))));
    if (kind == RowKind::kFlat) logits.back() = 1.5f;
    if (kind == RowKind::kTied) logits.back() = std::round(logits.back());
    const bool kept = id == size / 2 || (kind != RowKind::kOneLeft && u > 0.4);
    if ((kind == RowKind::kMasked || kind == RowKind::kOneLeft) && !kept) logits.back() = kMasked;
  }
  return logits;
}

}  // namespace paceline::testing
