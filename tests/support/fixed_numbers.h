// Runs a rule on the numbers that a recorded case (verify.json) fixes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sampling/draw.h"
#include "tests/support/laws.h"
#include "verify/rules.h"

namespace paceline::testing {

// Coins of a chain by position; of a tree by `sub`, whose number in the case `coin_of_sub` gives (by
// default the node). Token draws by position where the case gives them, else one for all.
class FixedNumbers : public Randomness {
 public:
  explicit FixedNumbers(const nlohmann::json& inputs, std::vector<size_t> coin_of_sub = {})
      : inputs_(inputs), coin_of_sub_(std::move(coin_of_sub)) {}

  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override {
    size_t coin = address.position;
    if (address.sub > 0) {
      coin = coin_of_sub_.empty() ? address.sub - 1u : coin_of_sub_.at(address.sub);
    }
    const double u = inputs_["accept_uniforms"].at(coin).get<double>();
    return {u * draft_prob < target_prob, u};
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t>) override {
    return Pick(address, weights);
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t>) override {
    return Pick(address, weights);
  }

 private:
  template <typename Real>
  TokenDraw Pick(const NoiseAddress& address, std::span<const Real> weights) {
    const double u = inputs_.contains("token_uniforms")
                         ? inputs_["token_uniforms"].at(address.position).get<double>()
                         : inputs_["final_uniform"].get<double>();
    return {InverseCdf(weights, u), u};
  }

  const nlohmann::json& inputs_;
  std::vector<size_t> coin_of_sub_;
};

template <typename Real>
absl::StatusOr<VerifyOutcome> Apply(const std::string& rule_name, const Proposal<Real>& proposal,
                                    const RowOf<Real>& target, Randomness& randomness,
                                    const RuleOptions& options = {}) {
  const Rule* rule = *FindRule(rule_name);
  PrefixRows<Real> rows(proposal.tree, target);
  const RuleInput<Real> input{proposal, rows, randomness, 0, options};
  if constexpr (std::is_same_v<Real, float>) {
    return rule->verify(input);
  } else {
    return rule->verify_double(input);
  }
}

}  // namespace paceline::testing
