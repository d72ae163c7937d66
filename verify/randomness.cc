#include "verify/randomness.h"

#include <algorithm>
#include <limits>

#include "sampling/draw.h"

namespace paceline {
namespace {

constexpr double kNoUniform = std::numeric_limits<double>::quiet_NaN();

template <typename Real>
TokenDraw DrawFrom(std::span<const Real> weights, std::span<const int32_t> ids,
                   const StreamKey& key, const NoiseAddress& address, DrawMethod method) {
  const int64_t index = DrawIndex(weights, ids, key, address, method);
  if (method == DrawMethod::kInverseCdf) return {index, Uniform(key, address)};
  if (index < 0) return {index, kNoUniform};
  const auto id = static_cast<uint32_t>(ids.empty() ? index : ids[index]);
  return {index, TokenUniform(key, address, id)};
}

template <typename Real>
TokenDraw Largest(std::span<const Real> weights) {
  return {std::max_element(weights.begin(), weights.end()) - weights.begin(), kNoUniform};
}

}  // namespace

CoinFlip LargestWeight::Coin(const NoiseAddress&, double, double) { return {false, kNoUniform}; }

TokenDraw LargestWeight::Draw(const NoiseAddress&, std::span<const float> weights,
                              std::span<const int32_t>) {
  return Largest(weights);
}

TokenDraw LargestWeight::Draw(const NoiseAddress&, std::span<const double> weights,
                              std::span<const int32_t>) {
  return Largest(weights);
}

CoinFlip StreamRandomness::Coin(const NoiseAddress& address, double target_prob,
                                double draft_prob) {
  const double u = Uniform(key_, address);
  return {u * draft_prob < target_prob, u};
}

TokenDraw StreamRandomness::Draw(const NoiseAddress& address, std::span<const float> weights,
                                 std::span<const int32_t> ids) {
  return DrawFrom(weights, ids, key_, address, method_);
}

TokenDraw StreamRandomness::Draw(const NoiseAddress& address, std::span<const double> weights,
                                 std::span<const int32_t> ids) {
  return DrawFrom(weights, ids, key_, address, method_);
}

}  // namespace paceline
