// What rules refuse, what they trace, and the float32 instance with its real random streams.
#include "verify/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "tests/support/chi_square.h"
#include "tests/support/laws.h"
#include "tests/support/status_matchers.h"
#include "verify/working_row.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using testing::Emitted;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakeRow;
using testing::PrefixRows;
using testing::RowOf;
using testing::StatusIs;
using testing::Tokens;

constexpr int kRounds = 200'000;

RowOf<float> Constant(std::vector<double> probs) {
  return [probs](const Tokens&) { return MakeRow<float>(probs); };
}

absl::StatusOr<VerifyOutcome> Judge(const char* rule, const Proposal<float>& proposal,
                                    const RowOf<float>& target, uint64_t seed,
                                    uint32_t position = 10) {
  PrefixRows<float> rows(proposal.tree, target);
  StreamRandomness randomness({seed, 0});
  return (*FindRule(rule))->verify({proposal, rows, randomness, position});
}

// A proposal of one token drawn from `draft` with the draft noise of `seed`.
Proposal<float> DrawOne(const std::vector<double>& draft, uint64_t seed) {
  Proposal<float> proposal;
  Distribution<float> row = MakeRow<float>(draft);
  proposal.tree.Add(-1, row.Draw(Uniform({seed, 0}, {10, Purpose::kDraft})));
  proposal.draft_rows.push_back(ProposalDist<float>::Sampled(std::move(row)));
  return proposal;
}

struct Frequencies {
  std::map<int32_t, int64_t> first;
  double acceptance = 0;
};

template <typename Propose>
Frequencies Measure(const char* rule, const RowOf<float>& target, Propose propose,
                    int rounds = kRounds) {
  Frequencies result;
  int64_t accepted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    const Proposal<float> proposal = propose(static_cast<uint64_t>(seed));
    const auto outcome = Judge(rule, proposal, target, static_cast<uint64_t>(seed));
    EXPECT_THAT(outcome, IsOk());
    ++result.first[Emitted(proposal.tree, *outcome)[0]];
    accepted += static_cast<int64_t>(outcome->path.size());
  }
  result.acceptance = static_cast<double>(accepted) / rounds;
  return result;
}

void ExpectFrequencies(const Frequencies& measured, const std::vector<double>& expected,
                       double tolerance) {
  for (size_t id = 0; id < expected.size(); ++id) {
    const auto found = measured.first.find(static_cast<int32_t>(id));
    const double count = found == measured.first.end() ? 0 : static_cast<double>(found->second);
    EXPECT_NEAR(count / kRounds, expected[id], tolerance) << "token " << id;
  }
}

// BR-01: q is the row that was drawn from, after the draft's own top-k.
TEST(RulesTest, FilteredDraftLeavesTheTargetsLaw) {
  const auto measured = Measure("standard", Constant({0.5, 0.3, 0.2}), [](uint64_t seed) {
    return DrawOne({4.0 / 7, 3.0 / 7, 0}, seed);
  });
  ExpectFrequencies(measured, {0.5, 0.3, 0.2}, 0.005);
  EXPECT_NEAR(measured.acceptance, 0.8, 0.005);
}

// BR-02: a draft picked by argmax is accepted with p(x).
TEST(RulesTest, ArgmaxDraftIsAOneHotProposal) {
  for (const char* rule : {"standard", "match"}) {
    const auto measured = Measure(rule, Constant({0.6, 0.4}), [](uint64_t) {
      return Proposal<float>::Deterministic(TokenTree::Chain(Tokens{0}));
    });
    ExpectFrequencies(measured, {0.6, 0.4}, 0.005);
    EXPECT_NEAR(measured.acceptance, 0.6, 0.005);
  }
}

// BR-03: one token follows a refusal, from the row of the refused position.
TEST(RulesTest, RefusalEmitsOneTokenOfItsOwnRow) {
  const RowOf<float> target = [](const Tokens& prefix) {
    return Distribution<float>::OneHot(7 + static_cast<int32_t>(prefix.size()), 10);
  };
  for (const char* rule : {"standard", "match", "greedy"}) {
    for (const Tokens& draft : {Tokens{5, 6}, Tokens{5}}) {
      const auto proposal = Proposal<float>::Deterministic(TokenTree::Chain(draft));
      const auto outcome = Judge(rule, proposal, target, 3);
      ASSERT_THAT(outcome, IsOk());
      EXPECT_THAT(Emitted(proposal.tree, *outcome), ElementsAre(7)) << rule;
    }
  }
}

// Refuses every draft, so that each round draws its recovery.
struct AlwaysRefuse : StreamRandomness {
  using StreamRandomness::StreamRandomness;
  CoinFlip Coin(const NoiseAddress&, double, double) override { return {false, 1.0}; }
};

// How often each token is the recovery of 100,000 refused drafts of token 0.
std::map<int32_t, int64_t> Recoveries(const Distribution<float>& target,
                                      const Distribution<float>& draft) {
  EXPECT_EQ(WorkingRow<float>(target).Subtract(1.0, draft), 0.0);
  Proposal<float> proposal;
  proposal.tree = TokenTree::Chain(Tokens{0});
  proposal.draft_rows.push_back(ProposalDist<float>::Sampled(draft));
  std::map<int32_t, int64_t> counts;
  for (uint64_t seed = 0; seed < 100'000; ++seed) {
    PrefixRows<float> rows(proposal.tree, [&](const Tokens&) { return target; });
    AlwaysRefuse randomness({seed, 0});
    const auto outcome = (*FindRule("standard"))->verify({proposal, rows, randomness, 0});
    EXPECT_THAT(outcome, IsOk());
    ++counts[outcome->next_token];
  }
  return counts;
}

// BR-04: an empty residual draws from the target: equal rows, and rows that differ by rounding.
TEST(RulesTest, EmptyResidualFallsBackToTheTarget) {
  const auto one_hot = MakeRow<float>({1, 0, 0, 0});
  EXPECT_EQ(Recoveries(one_hot, one_hot), (std::map<int32_t, int64_t>{{0, 100'000}}));
  const auto even = MakeRow<float>({0.25, 0.25, 0.25, 0.25});
  const auto rounded = MakeRow<float>({0.24999, 0.24999, 0.24999, 0.24999});
  for (const auto& target : {even, rounded}) {
    const auto counts = Recoveries(target, even);
    ASSERT_EQ(counts.size(), 4u);
    for (const auto& [token, count] : counts) {
      EXPECT_NEAR(static_cast<double>(count) / 1e5, 0.25, 0.006) << "token " << token;
    }
  }
}

TEST(RulesTest, StandardFollowsALargeTargetInFloat32) {
  constexpr int kVocabulary = 1000;
  std::vector<double> target(kVocabulary);
  std::vector<double> draft(kVocabulary);
  double target_sum = 0;
  double draft_sum = 0;
  for (int id = 0; id < kVocabulary; ++id) {
    target_sum += target[id] = -std::log(TokenUniform({11, 0}, {}, id));
    draft_sum += draft[id] = -std::log(TokenUniform({12, 0}, {}, id));
  }
  std::map<int32_t, double> law;
  for (int id = 0; id < kVocabulary; ++id) {
    law[id] = target[id] /= target_sum;
    draft[id] /= draft_sum;
  }
  const auto measured = Measure(
      "standard", Constant(target), [&](uint64_t seed) { return DrawOne(draft, seed + 1'000'000); },
      30'000);
  // One fixed experiment; a right rule fails it with probability 1e-4.
  EXPECT_GE(testing::ChiSquareTest(measured.first, law).p_value, 1e-4);
}

// u q = p is a refusal, so that u = 0 never accepts a token with p = 0.
TEST(RulesTest, CoinIsStrict) {
  StreamRandomness randomness({9, 0});
  for (uint32_t position = 0; position < 100; ++position) {
    const NoiseAddress address{position, Purpose::kAccept};
    for (double draft_prob : {1.0, 0.5, 0.3}) {
      const double boundary = Uniform({9, 0}, address) * draft_prob;
      EXPECT_FALSE(randomness.Coin(address, boundary, draft_prob).accepted);
      EXPECT_TRUE(randomness.Coin(address, std::nextafter(boundary, 1.0), draft_prob).accepted);
      EXPECT_FALSE(randomness.Coin(address, 0.0, draft_prob).accepted);
    }
  }
}

TEST(RulesTest, TraceReplaysTheDecisions) {
  Proposal<float> proposal = DrawOne({0.5, 0.5}, 1);
  const auto second = MakeRow<float>({0.2, 0.8});
  proposal.tree.Add(0, 1);
  proposal.draft_rows.push_back(ProposalDist<float>::Sampled(second));
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto outcome = Judge("standard", proposal, Constant({0.7, 0.3}), seed, 100);
    ASSERT_THAT(outcome, IsOk());
    uint32_t position = 100;
    for (const TokenTrace& entry : outcome->trace) {
      EXPECT_EQ(entry.position, position);
      const bool drafted = entry.node >= 0;
      const auto offset = static_cast<uint8_t>(drafted ? position - 100 : 0);
      const Purpose purpose = drafted ? Purpose::kAccept : Purpose::kToken;
      EXPECT_EQ(entry.uniform, Uniform({seed, 0}, {position, purpose, offset}));
      if (!drafted) {
        EXPECT_EQ(entry.token, outcome->next_token);
        continue;
      }
      const bool accepted = entry.uniform * entry.draft_prob < entry.target_prob;
      EXPECT_EQ(entry.decision, accepted ? Decision::kAccepted : Decision::kRejected);
      position += accepted;
    }
    EXPECT_EQ(outcome->trace.back().decision,
              outcome->path.size() == 2 ? Decision::kBonus : Decision::kRecovered);
  }
}

TEST(RulesTest, EmptyProposalIsAPlainDraw) {
  for (const char* rule : {"standard", "match"}) {
    const auto outcome = Judge(rule, Proposal<float>(), Constant({0.5, 0.5}), 4);
    ASSERT_THAT(outcome, IsOk());
    EXPECT_EQ(outcome->trace[0].decision, Decision::kPlain);
    EXPECT_EQ(outcome->next_token,
              Constant({0.5, 0.5})({}).Draw(Uniform({4, 0}, {10, Purpose::kToken})));
  }
}

TEST(RulesTest, ExpectedAcceptanceIsTheOverlapOrTheDraftsProbability) {
  const auto sampled = Judge("standard", DrawOne({0.9, 0.1}, 1), Constant({0.3, 0.7}), 1);
  EXPECT_NEAR(sampled->judged[0].expected_acceptance, 0.4, 1e-6);
  EXPECT_NEAR(sampled->judged[0].total_variation, 0.6, 1e-6);
  TokenTree tree;
  tree.Add(-1, 0);
  tree.Add(-1, 2);
  const auto walk =
      Judge("match", Proposal<float>::Deterministic(tree), Constant({0.3, 0.5, 0.2}), 1);
  EXPECT_NEAR(walk->judged[0].expected_acceptance, 0.5, 1e-6);
  EXPECT_TRUE(std::isnan(walk->judged[0].total_variation));
}

// The first `length` tokens of repeated rounds, each drafting what `draft` says after the tokens so
// far; every round's position is its committed length.
template <typename Draft>
Tokens Decode(const char* rule, const RowOf<float>& target, uint64_t seed, size_t length,
              Draft draft) {
  Tokens committed;
  while (committed.size() < length) {
    const Proposal<float> proposal = draft(committed);
    const auto after = [&](const Tokens& prefix) {
      Tokens all = committed;
      all.insert(all.end(), prefix.begin(), prefix.end());
      return target(all);
    };
    const auto outcome =
        Judge(rule, proposal, after, seed, static_cast<uint32_t>(committed.size()));
    EXPECT_THAT(outcome, IsOk());
    for (int32_t token : Emitted(proposal.tree, *outcome)) committed.push_back(token);
  }
  committed.resize(length);
  return committed;
}

// C.4: the same tokens for any draft, K and shape; `standard` too where nothing was drawn.
TEST(RulesTest, DeterministicDraftsDoNotChangeTheTokens) {
  const RowOf<float> target = [](const Tokens& prefix) {
    return prefix.size() % 2 ? MakeRow<float>({0.2, 0.5, 0.3}) : MakeRow<float>({0.4, 0.3, 0.3});
  };
  const auto nothing = [](const Tokens&) { return Proposal<float>(); };
  const auto tree = [](const Tokens&) {
    return Proposal<float>::Deterministic({{1, 2, 0, 1}, {-1, -1, 0, 0}});
  };
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Tokens plain = Decode("match", target, seed, 12, nothing);
    for (size_t length = 1; length <= 4; ++length) {
      const auto chain = [&](const Tokens& committed) {
        return Proposal<float>::Deterministic(
            TokenTree::Chain(Tokens(length, static_cast<int32_t>(committed.size() % 3))));
      };
      for (const char* rule : {"match", "standard"}) {
        EXPECT_EQ(Decode(rule, target, seed, 12, chain), plain) << rule << ", seed " << seed;
      }
    }
    EXPECT_EQ(Decode("match", target, seed, 12, tree), plain) << "seed " << seed;
  }
}

TEST(RulesTest, StandardRefusesTreesAndUndrawableTokens) {
  TokenTree tree;
  tree.Add(-1, 0);
  tree.Add(-1, 1);
  EXPECT_THAT(Judge("standard", Proposal<float>::Deterministic(tree), Constant({0.5, 0.5}), 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chain")));
  Proposal<float> proposal = DrawOne({0.0, 1.0}, 1);
  proposal.tree.tokens[0] = 0;
  EXPECT_THAT(Judge("standard", proposal, Constant({0.5, 0.5}), 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("draft_rows[0]")));
}

// Figures are for reports: without them the decisions are the same, and nothing is claimed.
TEST(RulesTest, FiguresChangeNoDecision) {
  for (const Rule& rule : Rules()) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const Proposal<float> proposal = DrawOne({0.4, 0.6}, seed);
      const auto verify = [&](bool figures) {
        PrefixRows<float> rows(proposal.tree, Constant({0.7, 0.3}));
        StreamRandomness randomness({seed, 0});
        return *rule.verify({proposal, rows, randomness, 10, {}, figures});
      };
      const VerifyOutcome with = verify(true);
      const VerifyOutcome without = verify(false);
      EXPECT_EQ(with.path, without.path) << rule.name;
      EXPECT_EQ(with.next_token, without.next_token) << rule.name;
      ASSERT_EQ(with.judged.size(), without.judged.size()) << rule.name;
      EXPECT_TRUE(std::isnan(without.judged[0].kl)) << rule.name;
      EXPECT_TRUE(std::isnan(without.judged[0].deviation)) << rule.name;
    }
  }
}

// Behind a drafted token that the target cannot give, there may be no row to judge with.
TEST(RulesTest, BlockNeedsNoRowBehindATokenWithoutMass) {
  Proposal<float> proposal = DrawOne({0.5, 0.5}, 1);
  const int32_t drafted = proposal.tree.tokens[0];
  proposal.tree.Add(0, 0);
  proposal.draft_rows.push_back(ProposalDist<float>::Sampled(testing::MakeRow<float>({1, 0})));
  const RowOf<float> target = [&](const Tokens& prefix) {
    EXPECT_TRUE(prefix.empty());
    return testing::MakeRow<float>(drafted == 0 ? std::vector<double>{0, 1}
                                                : std::vector<double>{1, 0});
  };
  const auto outcome = Judge("block", proposal, target, 1);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_TRUE(outcome->path.empty());
  EXPECT_EQ(outcome->next_token, 1 - drafted);
}

TEST(RulesTest, UnknownRuleNamesTheKnownOnes) {
  EXPECT_THAT(FindRule("medusa"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("standard, block, match, walk, greedy")));
}

TEST(RulesTest, ProposalsAreCheckedByName) {
  Proposal<float> proposal = DrawOne({0.5, 0.5}, 1);
  EXPECT_THAT(proposal.Validate(2), IsOk());
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(proposal.Validate(3), StatusIs(kInvalid, HasSubstr("draft_rows[0]")));
  proposal.draft_rows.clear();
  EXPECT_THAT(proposal.Validate(2), StatusIs(kInvalid, HasSubstr("draft_rows")));
  proposal.tree.tokens[0] = 9;
  EXPECT_THAT(proposal.Validate(2), StatusIs(kInvalid, HasSubstr("tokens[0]")));
}

}  // namespace
}  // namespace paceline
