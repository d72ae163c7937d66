// Drawing a token from weights with given noise (algorithms B.6).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/philox.h"

namespace paceline {

// How a token is drawn from a row.
enum class DrawMethod {
  kInverseCdf,  // By one number of the position.
  kGumbel,      // By one number of each token: the same noise for every row that is drawn from.
};

// Index of the first weight at which the running sum exceeds u times the total, in double. Entries
// of weight 0 are never returned; if rounding runs off the end, the last positive one is. u in [0,
// 1). -1 if no weight is positive. Cost: one pass for the total and one for the draw.
int64_t InverseCdf(std::span<const float> weights, double u);
int64_t InverseCdf(std::span<const double> weights, double u);

// Index of the weight with the largest log(weight) - log(-log(u)), u = TokenUniform(key, address, id)
// of its token, ties to the first: a draw from the normalised weights. `ids` are the tokens of the
// weights, empty where they are 0, 1, ...; -1 if no weight is positive. Cost: a number and rarely a
// logarithm for each weight.
int64_t GumbelIndex(std::span<const float> weights, std::span<const int32_t> ids,
                    const StreamKey& key, const NoiseAddress& address);
int64_t GumbelIndex(std::span<const double> weights, std::span<const int32_t> ids,
                    const StreamKey& key, const NoiseAddress& address);

// Index drawn by `method` with the number, or the numbers, of `address`: as the two above.
int64_t DrawIndex(std::span<const float> weights, std::span<const int32_t> ids,
                  const StreamKey& key, const NoiseAddress& address, DrawMethod method);
int64_t DrawIndex(std::span<const double> weights, std::span<const int32_t> ids,
                  const StreamKey& key, const NoiseAddress& address, DrawMethod method);

// InverseCdf for data that may be wrong. kInvalidArgument if u is not in [0, 1) or a weight is
// negative or NaN; kFailedPrecondition `no_token_left` if no weight is positive.
absl::StatusOr<int32_t> DrawToken(std::span<const double> weights, double u);

// argmax over tokens of log(weight) - log(-log(uniform)), ties to the lowest id: a draw from the
// normalised weights. uniforms[i] in (0, 1) belongs to token i. Errors as DrawToken.
absl::StatusOr<int32_t> DrawGumbel(std::span<const double> weights,
                                   std::span<const double> uniforms);

}  // namespace paceline
