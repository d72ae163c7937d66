// The proof harness: runs a random procedure once for every sequence of choices it can make.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "verify/randomness.h"

namespace paceline::testing {

// Answers a Coin with both outcomes and a Draw with every index of positive weight, one a run, and
// keeps the probability of the run. Runs differ in their last undecided choice first (depth first).
class EnumeratingRandomness : public Randomness {
 public:
  CoinFlip Coin(const NoiseAddress&, double target_prob, double draft_prob) override {
    const double heads = std::min(1.0, target_prob / draft_prob);
    return {Choose({heads, 1.0 - heads}) == 0, kNone};
  }
  TokenDraw Draw(const NoiseAddress&, std::span<const float> weights) override {
    return {Choose(std::vector<double>(weights.begin(), weights.end())), kNone};
  }
  TokenDraw Draw(const NoiseAddress&, std::span<const double> weights) override {
    return {Choose(std::vector<double>(weights.begin(), weights.end())), kNone};
  }

  double probability() const { return probability_; }

  void Start() {
    depth_ = 0;
    probability_ = 1;
  }

  // Moves to the next run; false after the last.
  bool Next() {
    while (!choices_.empty() && choices_.back().index + 1 == choices_.back().weights.size()) {
      choices_.pop_back();
    }
    if (choices_.empty()) return false;
    ++choices_.back().index;
    return true;
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  // Outcomes of positive probability, and the one of this run.
  struct Choice {
    std::vector<int64_t> outcomes;
    std::vector<double> weights;
    size_t index = 0;
  };

  int64_t Choose(const std::vector<double>& weights) {
    if (depth_ == choices_.size()) choices_.push_back(Outcomes(weights));
    const Choice& choice = choices_[depth_++];
    probability_ *= choice.weights[choice.index];
    return choice.outcomes[choice.index];
  }

  static Choice Outcomes(const std::vector<double>& weights) {
    double total = 0;
    for (double weight : weights) total += weight;
    Choice choice;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!(weights[i] > 0)) continue;
      choice.outcomes.push_back(static_cast<int64_t>(i));
      choice.weights.push_back(weights[i] / total);
    }
    return choice;
  }

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
