// Where a rule's randomness comes from.
//
// A rule draws in two ways only: Coin and Draw. Production answers both from the addressed uniforms
// of the request's stream; an exactness proof answers every Coin with both outcomes and every Draw
// with every token of positive weight, and so enumerates the very code that ships (algorithms A.2).
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "sampling/draw.h"

namespace paceline {

struct CoinFlip {
  bool accepted;
  double uniform;  // What was compared; NaN where there is none.
};

struct TokenDraw {
  int64_t index;  // Into the weights; -1 if none is positive.
  double uniform;  // Of the position, or of the drawn token.
};

class Randomness {
 public:
  virtual ~Randomness() = default;

  // True with probability min(1, target_prob / draft_prob): iff u * draft_prob < target_prob.
  virtual CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) = 0;

  // An index with probability weights[index] / sum(weights). `ids` are the tokens of the weights,
  // empty where they are 0, 1, ...
  virtual TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                         std::span<const int32_t> ids) = 0;
  virtual TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                         std::span<const int32_t> ids) = 0;
};

// Draws the largest weight, ties to the first, and refuses every coin: temperature 0.
class LargestWeight : public Randomness {
 public:
  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override;
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t> ids) override;
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t> ids) override;
};

// The addressed uniforms of one sequence. A pure function of key and address; thread-safe.
class StreamRandomness : public Randomness {
 public:
  explicit StreamRandomness(StreamKey key, DrawMethod method = DrawMethod::kInverseCdf)
      : key_(key), method_(method) {}

  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override;
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t> ids) override;
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t> ids) override;

 private:
  StreamKey key_;
  DrawMethod method_;
};

}  // namespace paceline
