#include "verify/randomness.h"

#include "sampling/draw.h"

namespace paceline {

CoinFlip StreamRandomness::Coin(const NoiseAddress& address, double target_prob,
                                double draft_prob) {
  const double u = Uniform(key_, address);
  return {u * draft_prob < target_prob, u};
}

TokenDraw StreamRandomness::Draw(const NoiseAddress& address, std::span<const float> weights) {
  const double u = Uniform(key_, address);
  return {InverseCdf(weights, u), u};
}

TokenDraw StreamRandomness::Draw(const NoiseAddress& address, std::span<const double> weights) {
  const double u = Uniform(key_, address);
  return {InverseCdf(weights, u), u};
}

}  // namespace paceline
