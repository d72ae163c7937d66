// The recorded cases of verify.json, against the rules that ship: laws by enumeration, traces with
// fixed numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "sampling/draw.h"
#include "tests/support/enumeration.h"
#include "tests/support/laws.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "verify/rules.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Emitted;
using testing::IsOk;
using testing::Law;
using testing::MakeRow;
using testing::Numbers;
using testing::PrefixRows;
using testing::ReadJson;
using testing::RowOf;
using testing::StatusIs;
using testing::Tokens;

// Cases of other rules, of the planner, and of what the engine counts (tests/runtime).
const char* const kElsewhere[] = {"block/",
                                  "coupled/",
                                  "single/",
                                  "rrs/",
                                  "k-seq/",
                                  "sampled-first/",
                                  "tree/rrs/",
                                  "tree/traversal/",
                                  "tree/sampled-first/",
                                  "trace/block/",
                                  "trace/rrs/",
                                  "trace/k-seq/",
                                  "trace/traversal/",
                                  "trace/sampled-first/",
                                  "trace/coupled/",
                                  "typical/",
                                  "relaxed/",
                                  "ensemble/",
                                  "synthetic/",
                                  "biased/",
                                  "noise-reuse/",
                                  "formula/",
                                  "length/",
                                  "estimate/",
                                  "metric/wilson/",
                                  "metric/counters/"};

bool IsElsewhere(const std::string& name) {
  for (const char* prefix : kElsewhere) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Rows indexed by the last token of the prefix, or by position for cases with one row a position.
template <typename Real>
RowOf<Real> Rows(const json& inputs, const std::string& side, const std::string& plain) {
  if (inputs.contains(side + "_root")) {
    const auto root = Numbers<double>(inputs[side + "_root"]);
    std::vector<std::vector<double>> rows;
    for (const auto& row : inputs[side + "_rows"]) rows.push_back(Numbers<double>(row));
    return [=](const Tokens& prefix) {
      return MakeRow<Real>(prefix.empty() ? root : rows[prefix.back()]);
    };
  }
  std::vector<std::vector<double>> rows;
  if (!inputs[plain].empty() && inputs[plain][0].is_array()) {
    for (const auto& row : inputs[plain]) rows.push_back(Numbers<double>(row));
  } else if (!inputs[plain].empty()) {
    rows.push_back(Numbers<double>(inputs[plain]));
  }
  if (inputs.contains("bonus_row")) rows.push_back(Numbers<double>(inputs["bonus_row"]));
  // A case that ends before the bonus row gives none: the last row stands in and is never drawn
  // from.
  return [=](const Tokens& prefix) {
    return MakeRow<Real>(rows[std::min(prefix.size(), rows.size() - 1)]);
  };
}

bool OneHotAt(const json& inputs, size_t i) {
  return inputs.contains("one_hot") && inputs["one_hot"][i].get<bool>();
}

template <typename Real>
Proposal<Real> Drafted(const json& inputs) {
  Proposal<Real> proposal;
  const auto draft = Rows<Real>(inputs, "draft", "q");
  const auto tokens = inputs["draft"].get<Tokens>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    proposal.draft_rows.push_back(OneHotAt(inputs, i)
                                      ? ProposalDist<Real>::Deterministic()
                                      : ProposalDist<Real>::Sampled(draft(proposal.tree.tokens)));
    proposal.tree.Add(static_cast<int32_t>(i) - 1, tokens[i]);
  }
  return proposal;
}

// Coins by drafted position; token draws by position where the case gives them, else one for all.
class FixedNumbers : public Randomness {
 public:
  explicit FixedNumbers(const json& inputs) : inputs_(inputs) {}

  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override {
    const double u = inputs_["accept_uniforms"][address.position].get<double>();
    return {u * draft_prob < target_prob, u};
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights) override {
    return Pick(address, weights);
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights) override {
    return Pick(address, weights);
  }

 private:
  template <typename Real>
  TokenDraw Pick(const NoiseAddress& address, std::span<const Real> weights) {
    const double u = inputs_.contains("token_uniforms")
                         ? inputs_["token_uniforms"][address.position].get<double>()
                         : inputs_["final_uniform"].get<double>();
    return {InverseCdf(weights, u), u};
  }

  const json& inputs_;
};

template <typename Real>
absl::StatusOr<VerifyOutcome> Apply(const std::string& rule_name, const Proposal<Real>& proposal,
                                    const RowOf<Real>& target, Randomness& randomness) {
  const Rule* rule = *FindRule(rule_name);
  PrefixRows<Real> rows(proposal.tree, target);
  const RuleInput<Real> input{proposal, rows, randomness, 0};
  if constexpr (std::is_same_v<Real, float>) {
    return rule->verify(input);
  } else {
    return rule->verify_double(input);
  }
}

void ExpectOutcome(const absl::StatusOr<VerifyOutcome>& outcome, const TokenTree& tree,
                   const json& emitted, const json& num_accepted) {
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(Emitted(tree, *outcome), emitted.get<Tokens>());
  EXPECT_EQ(outcome->path.size(), num_accepted.get<size_t>());
}

template <typename Real>
void RunTrace(const json& one, const json& inputs, const json& emitted, const json& accepted) {
  const Proposal<Real> proposal = Drafted<Real>(inputs);
  FixedNumbers numbers(inputs);
  ExpectOutcome(
      Apply<Real>(one["params"]["method"], proposal, Rows<Real>(inputs, "target", "p"), numbers),
      proposal.tree, emitted, accepted);
}

void RunTraceCase(const json& one) {
  RunTrace<double>(one, one["inputs"], one["expected"]["emitted"], one["expected"]["num_accepted"]);
  // The edges about the last bits of float32 rows are stated in decimals: they hold as doubles.
  if (!one["name"].get<std::string>().starts_with("edge/")) {
    RunTrace<float>(one, one["inputs"], one["expected"]["emitted"],
                    one["expected"]["num_accepted"]);
  }
}

void RunRagged(const json& one) {
  const json& rows = one["inputs"]["rows"];
  for (size_t row = 0; row < rows.size(); ++row) {
    RunTrace<double>(one, rows[row], one["expected"]["emitted"][row],
                     one["expected"]["num_accepted"][row]);
    RunTrace<float>(one, rows[row], one["expected"]["emitted"][row],
                    one["expected"]["num_accepted"][row]);
  }
}

void RunRefused(const json& one) {
  FixedNumbers numbers(one["inputs"]);
  const auto proposal = Drafted<double>(one["inputs"]);
  EXPECT_THAT(
      Apply<double>("standard", proposal, Rows<double>(one["inputs"], "target", "p"), numbers),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("draft_rows[0]")));
}

// A walk's draws by depth, on the tree of the case.
void RunWalkTrace(const json& one) {
  const json& inputs = one["inputs"];
  TokenTree tree{inputs["tokens"].get<Tokens>(), inputs["parents"].get<Tokens>()};
  const auto proposal = Proposal<double>::Deterministic(tree);
  FixedNumbers numbers(inputs);
  const auto outcome =
      Apply<double>("match", proposal, Rows<double>(inputs, "target", "p"), numbers);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(Emitted(tree, *outcome), one["expected"]["emitted"].get<Tokens>());
  EXPECT_EQ(outcome->path, one["expected"]["path"].get<Tokens>());
}

void RunGreedy(const json& one) {
  const json& logits = one["inputs"]["target_logits"];
  // A softmax keeps the order and the ties of its logits.
  const RowOf<double> target = [&](const Tokens& prefix) {
    Candidates<double> candidates;
    const auto row = Numbers<double>(logits[prefix.size()]);
    EXPECT_THAT(candidates.Assign(std::span<const double>(row), static_cast<int32_t>(row.size())),
                IsOk());
    return *Distribution<double>::Softmax(candidates);
  };
  const auto tree = TokenTree::Chain(one["inputs"]["draft"].get<Tokens>());
  FixedNumbers none(one["inputs"]);
  ExpectOutcome(Apply<double>("greedy", Proposal<double>::Deterministic(tree), target, none), tree,
                one["expected"]["emitted"], one["expected"]["num_accepted"]);
}

void RunDivergence(const json& one) {
  const auto target = MakeRow<double>(Numbers<double>(one["inputs"]["p"]));
  const auto draft = MakeRow<double>(Numbers<double>(one["inputs"]["q"]));
  const Divergence divergence = target.DivergenceFrom(draft);
  const double tolerance = one["tolerance"].get<double>();
  const std::map<std::string, double> measured = {{"acceptance", divergence.overlap},
                                                  {"expected_acceptance", divergence.overlap},
                                                  {"total_variation", divergence.total_variation},
                                                  {"kl_divergence", divergence.kl}};
  int compared = 0;
  for (const auto& [name, value] : one["expected"].items()) {
    const auto found = measured.find(name);
    if (found == measured.end()) continue;
    ++compared;
    const double expected = testing::Number(value);
    if (std::isinf(expected)) {
      EXPECT_EQ(found->second, expected) << name;
    } else {
      EXPECT_NEAR(found->second, expected, tolerance) << name;
    }
  }
  EXPECT_GE(compared, 2);
}

// ---- Cases that state the law of one round.

// Draws a chain from the draft's rows, or takes its argmax where the case says one-hot.
Proposal<double> DrawCase(const json& one, Randomness& randomness) {
  const json& inputs = one["inputs"];
  const json& params = one["params"];
  const auto draft = Rows<double>(inputs, "draft", "q");
  Proposal<double> proposal;
  for (int32_t i = 0; i < params["k"].get<int32_t>(); ++i) {
    Distribution<double> row = draft(proposal.tree.tokens);
    const bool one_hot = OneHotAt(inputs, i);
    const int32_t token = one_hot ? row.Argmax() : row.IdAt(randomness.Draw({}, row.probs()).index);
    const double drawn_with = row.Prob(token);
    proposal.tree.Add(i - 1, token);
    proposal.draft_rows.push_back(one_hot ? ProposalDist<double>::Deterministic()
                                          : ProposalDist<double>::Sampled(std::move(row)));
    if (params.contains("stop_after_if_q_below") &&
        drawn_with < params["stop_after_if_q_below"].get<double>()) {
      break;
    }
  }
  return proposal;
}

Proposal<double> CaseProposal(const json& one, Randomness& randomness) {
  if (!one["inputs"].contains("tokens")) return DrawCase(one, randomness);
  return Proposal<double>::Deterministic(
      {one["inputs"]["tokens"].get<Tokens>(), one["inputs"]["parents"].get<Tokens>()});
}

void RunLaw(const json& one) {
  const std::string method = one["params"]["method"].get<std::string>();
  const auto target = Rows<double>(one["inputs"], "target", "p");
  Law law;
  std::map<size_t, double> lengths;
  std::map<int32_t, double> first;
  double mean = 0;
  testing::Enumerate(
      [&](Randomness& randomness) {
        const Proposal<double> proposal = CaseProposal(one, randomness);
        const auto outcome =
            Apply<double>(method == "walk" ? "match" : method, proposal, target, randomness);
        EXPECT_THAT(outcome, IsOk());
        return Emitted(proposal.tree, *outcome);
      },
      [&](const Tokens& emitted, double probability) {
        law[emitted] += probability;
        lengths[emitted.size()] += probability;
        first[emitted[0]] += probability;
        mean += probability * static_cast<double>(emitted.size());
      });
  const json& expected = one["expected"];
  const double tolerance = one["tolerance"].get<double>();
  EXPECT_NEAR(mean, expected["mean_tokens"].get<double>(), tolerance);
  ASSERT_EQ(law.size(), expected["emitted"].size());
  for (const auto& [tokens, probability] : law) {
    const auto key = absl::StrJoin(tokens, ",");
    ASSERT_TRUE(expected["emitted"].contains(key)) << key;
    EXPECT_NEAR(probability, expected["emitted"][key].get<double>(), tolerance) << key;
  }
  for (size_t i = 0; i < expected["tokens_pmf"].size(); ++i) {
    EXPECT_NEAR(lengths[i + 1], expected["tokens_pmf"][i].get<double>(), tolerance);
  }
  for (size_t i = 0; i < expected["first_token"].size(); ++i) {
    EXPECT_NEAR(first[static_cast<int32_t>(i)], expected["first_token"][i].get<double>(),
                tolerance);
  }
}

void RunCase(const json& one) {
  const std::string name = one["name"].get<std::string>();
  if (name == "edge/drafted-token-with-no-draft-mass") return RunRefused(one);
  if (name.starts_with("trace/walk/")) return RunWalkTrace(one);
  if (name.starts_with("trace/") || name.starts_with("edge/")) return RunTraceCase(one);
  if (name.starts_with("ragged/")) return RunRagged(one);
  if (name.starts_with("greedy/")) return RunGreedy(one);
  if (name.starts_with("metric/divergence/")) return RunDivergence(one);
  RunLaw(one);
}

TEST(VerifyCasesTest, EveryCaseOfABuiltRuleHolds) {
  const json cases = ReadJson("verify.json");
  int run = 0;
  int elsewhere = 0;
  for (const auto& one : cases["cases"]) {
    const std::string name = one["name"].get<std::string>();
    if (IsElsewhere(name)) {
      ++elsewhere;
      continue;
    }
    SCOPED_TRACE(name);
    RunCase(one);
    ++run;
  }
  std::printf("[cases] verify.json: %d run, %d of other rules or other modules\n", run, elsewhere);
  EXPECT_EQ(run, 56);
}

}  // namespace
}  // namespace paceline
