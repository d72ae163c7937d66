// The proof harness: runs a random procedure once for every sequence of choices it can make.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "verify/randomness.h"

namespace paceline::testing {

// Every address holds one number u, uniform in [0, 1), of which a run knows an interval. A Coin cuts
// the interval at its threshold, a Draw at the partial sums of its weights; each piece of positive
// length is one choice. An address that is read again is the same number again, as in production: a
// procedure that uses noise twice is enumerated as what it is. Runs differ in their last undecided
// choice first (depth first), and each knows its probability.
class EnumeratingRandomness : public Randomness {
 public:
  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override {
    const double heads = std::clamp(target_prob / draft_prob, 0.0, 1.0);
    return {Choose(address, {heads, 1.0 - heads}) == 0, kNone};
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t>) override {
    return {Choose(address, std::vector<double>(weights.begin(), weights.end())), kNone};
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t>) override {
    return {Choose(address, std::vector<double>(weights.begin(), weights.end())), kNone};
  }

  double probability() const { return probability_; }

  void Start() {
    depth_ = 0;
    probability_ = 1;
    known_.clear();
  }

  // Moves to the next run; false after the last.
  bool Next() {
    while (!choices_.empty() && choices_.back().index + 1 == choices_.back().pieces.size()) {
      choices_.pop_back();
    }
    if (choices_.empty()) return false;
    ++choices_.back().index;
    return true;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  static constexpr double kSliver = 1e-15;  // Pieces that only rounding makes.

  struct Interval {
    double low = 0;
    double high = 1;
  };
  // An outcome, its probability given what was known, and what is known after it.
  struct Piece {
    int64_t outcome;
    double probability;
    Interval interval;
  };
  struct Choice {
    std::vector<Piece> pieces;
    size_t index = 0;
  };
  struct Known {
    NoiseAddress address;
    Interval interval;
  };

  int64_t Choose(const NoiseAddress& address, const std::vector<double>& weights) {
    Interval& known = KnownOf(address);
    if (depth_ == choices_.size()) choices_.push_back({Pieces(weights, known)});
    const Choice& choice = choices_[depth_++];
    const Piece& piece = choice.pieces[choice.index];
    probability_ *= piece.probability;
    known = piece.interval;
    return piece.outcome;
  }

  // Few numbers are read a run: a list serves better than a map.
  Interval& KnownOf(const NoiseAddress& address) {
    for (Known& known : known_) {
      if (known.address == address) return known.interval;
    }
    return known_.emplace_back(Known{address, {}}).interval;
  }

  static std::vector<Piece> Pieces(const std::vector<double>& weights, const Interval& known) {
    double total = 0;
    for (double weight : weights) total += weight;
    const bool fresh = known.low == 0 && known.high == 1;
    std::vector<Piece> pieces;
    double end = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!(weights[i] > 0)) continue;
      const double share = weights[i] / total;
      const Interval piece{std::max(known.low, end), std::min(known.high, end + share)};
      end += share;
      const double length = piece.high - piece.low;
      if (!fresh && length <= kSliver) continue;
      // A fresh number needs no subtraction, which would round.
      const double probability = fresh ? share : length / (known.high - known.low);
      pieces.push_back({static_cast<int64_t>(i), probability, piece});
    }
    return pieces;
  }

  std::vector<Known> known_;
  std::vector<Choice> choices_;
  size_t depth_ = 0;
  double probability_ = 1;
};

// Calls procedure(randomness) once for every sequence of choices, and visit(result, probability)
// after each. Probabilities of all runs sum to 1.
template <typename Procedure, typename Visit>
void Enumerate(Procedure procedure, Visit visit) {
  EnumeratingRandomness randomness;
  do {
    randomness.Start();
    auto result = procedure(randomness);
    visit(std::move(result), randomness.probability());
  } while (randomness.Next());
}

}  // namespace paceline::testing
