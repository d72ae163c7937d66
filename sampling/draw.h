// Drawing a token from weights with given noise (algorithms B.6).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace paceline {

// Index of the first weight at which the running sum exceeds u times the total, in double. Entries
// of weight 0 are never returned; if rounding runs off the end, the last positive one is. u in [0,
// 1). -1 if no weight is positive. Cost: one pass for the total and one for the draw.
int64_t InverseCdf(std::span<const float> weights, double u);
int64_t InverseCdf(std::span<const double> weights, double u);

// InverseCdf for data that may be wrong. kInvalidArgument if u is not in [0, 1) or a weight is
// negative or NaN; kFailedPrecondition `no_token_left` if no weight is positive.
absl::StatusOr<int32_t> DrawToken(std::span<const double> weights, double u);

// argmax over tokens of log(weight) - log(-log(uniform)), ties to the lowest id: a draw from the
// normalised weights. uniforms[i] in (0, 1) belongs to token i. Errors as DrawToken.
absl::StatusOr<int32_t> DrawGumbel(std::span<const double> weights,
                                   std::span<const double> uniforms);

}  // namespace paceline
