// Rounds driven directly: trees, which no drafter of the engine proposes yet.
#include "runtime/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/engine_fixture.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using testing::ExpectSameAnswer;
using testing::FunctionDrafter;
using testing::Greedy;
using testing::HashedRows;
using ::testing::HasSubstr;
using testing::Plain;
using testing::RunRounds;
using testing::Sampled;
using testing::StatusIs;
using testing::TableModel;
using testing::TestEngine;

constexpr int32_t kVocab = 5;

std::vector<int32_t> TopTokens(const std::vector<float>& row, int32_t count) {
  std::vector<int32_t> ids(row.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
  ids.resize(count);
  return ids;
}

// Proposes the `width` most likely tokens of `row` under every node, down to the depth the round
// allows but at most `depth`.
std::unique_ptr<Drafter> TreeOf(TableModel::RowFunction row, int32_t width, int32_t depth) {
  return std::make_unique<FunctionDrafter>([=](const DraftRequest& request) {
    TokenTree tree;
    const int32_t deepest = std::min(depth, request.max_tokens);
    for (int32_t node = -1; node < tree.size(); ++node) {
      if (tree.Depth(node) == deepest) continue;
      std::vector<int32_t> history(request.committed.begin(), request.committed.end());
      const auto drafted = tree.PathTokens(node);
      history.insert(history.end(), drafted.begin(), drafted.end());
      for (int32_t token : TopTokens(row(history), width)) tree.Add(node, token);
    }
    return Proposal<float>::Deterministic(std::move(tree));
  });
}

// A tree of random shape and tokens.
std::unique_ptr<Drafter> RandomTree(uint32_t seed) {
  auto random = std::make_shared<std::mt19937>(seed);
  return std::make_unique<FunctionDrafter>([=](const DraftRequest& request) {
    TokenTree tree;
    const auto size = static_cast<int32_t>((*random)() % 12);
    for (int32_t tries = 0; tries < size; ++tries) {
      const auto parent = static_cast<int32_t>((*random)() % (tree.size() + 1)) - 1;
      if (tree.Depth(parent) == request.max_tokens) continue;
      TokenTree larger = tree;
      larger.Add(parent, static_cast<int32_t>((*random)() % kVocab));
      if (larger.Validate(kVocab).ok()) tree = larger;
    }
    return Proposal<float>::Deterministic(std::move(tree));
  });
}

class TreeRoundTest : public ::testing::Test {
 protected:
  TableModel::RowFunction row_ = HashedRows(kVocab, 8, 1.5);
  TableModel model_{kVocab, 48, row_};
  TestEngine engine_{{.target = row_, .vocab_size = kVocab, .context_length = 48, .end_ids = {4}}};
};

// BR-33: whatever the tree's shape, the plain greedy tokens; with penalties and endings too.
TEST_F(TreeRoundTest, GreedyTreesGiveTheTokensOfPlainDecoding) {
  for (int32_t width : {1, 2, 4}) {
    for (int32_t depth : {1, 2, 3}) {
      SCOPED_TRACE(::testing::Message() << "width " << width << ", depth " << depth);
      auto request = Greedy({1, 2}, 30);
      request.sampling.frequency_penalty = 0.3;
      request.num_logprobs = 1;
      const Choice choice =
          RunRounds(model_, engine_.vocabulary(), request, TreeOf(row_, width, depth));
      ExpectSameAnswer(choice, engine_.RunOne(Plain(request)));
      EXPECT_GT(choice.telemetry.num_accepted_tokens, 0);
    }
  }
}

TEST_F(TreeRoundTest, MatchOnTreesGivesTheTokensOfPlainDecoding) {
  const auto wrong = HashedRows(kVocab, 9, 1.5);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    auto request = Sampled({1, 2}, 46, seed);
    request.speculation.verify = "match";
    request.sampling.presence_penalty = 0.4;
    request.sampling.top_k = 4;
    request.ignore_eos = seed % 2;
    request.num_logprobs = 2;
    const Choice plain = engine_.RunOne(Plain(request));
    for (const auto& row : {row_, wrong}) {
      ExpectSameAnswer(RunRounds(model_, engine_.vocabulary(), request, TreeOf(row, 2, 4)), plain);
    }
    ExpectSameAnswer(
        RunRounds(model_, engine_.vocabulary(), request, RandomTree(static_cast<uint32_t>(seed))),
        plain);
  }
}

TEST_F(TreeRoundTest, WiderTreesAreAcceptedFurther) {
  double previous = 1;
  for (int32_t width : {1, 2, 4}) {
    Telemetry telemetry;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      auto request = Sampled({1, 2}, 40, seed);
      request.speculation.verify = "match";
      request.ignore_eos = true;
      telemetry.Merge(
          RunRounds(model_, engine_.vocabulary(), request, TreeOf(row_, width, 3)).telemetry);
    }
    EXPECT_GT(*telemetry.TokensPerRound(), previous) << "width " << width;
    const Interval interval = telemetry.JudgedAcceptanceInterval();
    EXPECT_GE(*telemetry.expected_acceptance.Value(), interval.low);
    EXPECT_LE(*telemetry.expected_acceptance.Value(), interval.high);
    previous = *telemetry.TokensPerRound();
  }
}

// BR-33: root children {3, 5}, target's argmax 5; below it {1, 2}, argmax 4.
TEST_F(TreeRoundTest, WalkStopsWhereNoChildHoldsTheToken) {
  TableModel model(8, 48, testing::Script(8, 1, {5, 4}));
  TestEngine vocabulary({.target = HashedRows(8, 1, 1)});
  TokenTree tree;
  tree.Add(-1, 3);
  const int32_t five = tree.Add(-1, 5);
  tree.Add(five, 1);
  tree.Add(five, 2);
  const Choice choice = RunRounds(model, vocabulary.vocabulary(), Greedy({0}, 2),
                                  std::make_unique<FunctionDrafter>([&](const DraftRequest&) {
                                    return Proposal<float>::Deterministic(tree);
                                  }));
  EXPECT_THAT(choice.tokens, ElementsAre(5, 4));
  EXPECT_EQ(choice.telemetry.num_rounds, 1);
  EXPECT_EQ(choice.telemetry.num_draft_tokens, 4);
  EXPECT_EQ(choice.telemetry.num_accepted_tokens, 1);
}

TEST_F(TreeRoundTest, NodesDeeperThanAnEndingDoNotCount) {
  TableModel model(8, 48, testing::Script(8, 1, {5, 6, 1}));
  TestEngine vocabulary({.target = HashedRows(8, 1, 1), .end_ids = {6}});
  TokenTree tree;  // Depths 1, 1, 2, 3.
  tree.Add(-1, 3);
  tree.Add(tree.Add(tree.Add(-1, 5), 6), 1);
  const Choice choice = RunRounds(model, vocabulary.vocabulary(), Greedy({0}, 9),
                                  std::make_unique<FunctionDrafter>([&](const DraftRequest&) {
                                    return Proposal<float>::Deterministic(tree);
                                  }));
  EXPECT_THAT(choice.tokens, ElementsAre(5, 6));
  EXPECT_EQ(choice.telemetry.num_draft_tokens, 3);
  EXPECT_EQ(choice.telemetry.num_accepted_tokens, 2);
  EXPECT_EQ(choice.telemetry.num_emitted_tokens, 2);
}

TEST_F(TreeRoundTest, StandardRefusesATree) {
  auto request = Sampled({1, 2}, 10, 1);
  const Choice choice = RunRounds(model_, engine_.vocabulary(), request, TreeOf(row_, 2, 2));
  EXPECT_THAT(choice.status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("`standard` expects a chain")));
  EXPECT_TRUE(choice.tokens.empty());
}

TEST_F(TreeRoundTest, UnsoundProposalEndsTheRequest) {
  const Choice choice = RunRounds(model_, engine_.vocabulary(), Greedy({1, 2}, 10),
                                  testing::AlwaysPicks({1, kVocab}));
  EXPECT_THAT(choice.status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("expected an id in [0, 5), got 5")));
}

}  // namespace
}  // namespace paceline
