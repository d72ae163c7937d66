#include "target/target.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/status_matchers.h"
#include "tests/support/table_model.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using testing::HashedRows;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TableModel;

constexpr int32_t kVocab = 11;
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 6};

std::vector<int32_t> Joined(std::vector<int32_t> front, std::span<const int32_t> back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

std::vector<float> Copied(std::span<const float> row) { return {row.begin(), row.end()}; }

// A tree of `size` nodes with random parents and distinct siblings.
TokenTree RandomTree(int32_t size, std::mt19937& random) {
  TokenTree tree;
  while (tree.size() < size) {
    const auto parent = static_cast<int32_t>(random() % (tree.size() + 1)) - 1;
    const auto token = static_cast<int32_t>(random() % kVocab);
    tree.Add(parent, token);
    if (tree.Validate(kVocab).ok()) continue;
    tree.tokens.pop_back();
    tree.parents.pop_back();
  }
  return tree;
}

// Node indices from the root to `node` inclusive.
std::vector<int32_t> PathTo(const TokenTree& tree, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.parents[node]) path.insert(path.begin(), node);
  return path;
}

class TargetTest : public ::testing::Test {
 protected:
  // Scores `tree` behind `committed` and checks every row against the model's own of its path.
  void ScoreAndCheck(SequenceId sequence, const std::vector<int32_t>& committed,
                     const TokenTree& tree) {
    const ScoreRequest request{sequence, committed.back(), &tree};
    const auto scores = target_.Score({&request, 1});
    ASSERT_THAT(scores, IsOk());
    for (int32_t node = -1; node < tree.size(); ++node) {
      EXPECT_EQ(Copied(scores->Row(0, node)), row_(Joined(committed, tree.PathTokens(node))))
          << "node " << node;
    }
  }

  int32_t Length(SequenceId sequence) { return model_.cache().Length(sequence); }

  TableModel::RowFunction row_ = HashedRows(kVocab, 5, 3.0);
  TableModel model_{kVocab, 600, row_};
  Target target_{&model_};
};

TEST_F(TargetTest, StartCachesAllButTheLastToken) {
  const auto sequence = target_.Start(kPrompt);
  ASSERT_THAT(sequence, IsOk());
  EXPECT_EQ(Length(*sequence), 5);
  ScoreAndCheck(*sequence, kPrompt, {});
}

TEST_F(TargetTest, StartOfOneTokenRunsNoPass) {
  const auto sequence = target_.Start(std::vector<int32_t>{3});
  ASSERT_THAT(sequence, IsOk());
  EXPECT_EQ(Length(*sequence), 0);
  EXPECT_EQ(model_.num_passes(), 0);
  ScoreAndCheck(*sequence, {3}, TokenTree::Chain(std::vector<int32_t>{4, 5}));
}

TEST_F(TargetTest, StartOfNothingIsRefused) {
  EXPECT_THAT(target_.Start({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prompt")));
}

TEST_F(TargetTest, StartReportsProgressInChunksToTheEnd) {
  const std::vector<int32_t> prompt(520, 7);
  std::vector<int64_t> done;
  const auto sequence = target_.Start(prompt, [&](int64_t now, int64_t total) {
    EXPECT_EQ(total, 519);
    done.push_back(now);
    return true;
  });
  ASSERT_THAT(sequence, IsOk());
  EXPECT_THAT(done, ElementsAre(256, 512, 519));
  ScoreAndCheck(*sequence, prompt, {});
}

TEST_F(TargetTest, StoppedStartLeavesNothing) {
  const std::vector<int32_t> prompt(520, 7);
  const auto sequence = target_.Start(prompt, [](int64_t, int64_t) { return false; });
  EXPECT_THAT(sequence, StatusIs(absl::StatusCode::kCancelled, HasSubstr("prompt")));
  EXPECT_EQ(model_.cache().pages_in_use(), 0);
}

TEST_F(TargetTest, FailedStartLeavesNothing) {
  model_.FailNext(absl::ResourceExhaustedError("no memory"));
  EXPECT_THAT(target_.Start(kPrompt),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_EQ(model_.cache().pages_in_use(), 0);
}

TEST_F(TargetTest, StartBeyondTheContextIsOutOfRange) {
  EXPECT_THAT(target_.Start(std::vector<int32_t>(602, 1)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("context")));
  EXPECT_EQ(model_.cache().pages_in_use(), 0);
}

TEST_F(TargetTest, ScoresChainsOfEveryLength) {
  for (int32_t num_draft = 0; num_draft <= 20; ++num_draft) {
    SCOPED_TRACE(num_draft);
    const auto sequence = target_.Start(kPrompt);
    ASSERT_THAT(sequence, IsOk());
    std::vector<int32_t> draft;
    for (int32_t i = 0; i < num_draft; ++i) draft.push_back((3 * i + 2) % kVocab);
    ScoreAndCheck(*sequence, kPrompt, TokenTree::Chain(draft));
    EXPECT_EQ(Length(*sequence), 5 + 1 + num_draft);
  }
}

TEST_F(TargetTest, ScoresTreesNodeByNode) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto sequence = target_.Start(kPrompt);
    ASSERT_THAT(sequence, IsOk());
    ScoreAndCheck(*sequence, kPrompt, RandomTree(1 + static_cast<int32_t>(random() % 24), random));
  }
}

TEST_F(TargetTest, ScoresRequestsTogetherAsAlone) {
  const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}};
  std::mt19937 random(3);
  const std::vector<TokenTree> trees = {RandomTree(5, random), {}, RandomTree(9, random)};
  std::vector<ScoreRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({*target_.Start(prompts[i]), prompts[i].back(), &trees[i]});
  }
  const auto scores = target_.Score(requests);
  ASSERT_THAT(scores, IsOk());
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (int32_t node = -1; node < trees[i].size(); ++node) {
      EXPECT_EQ(Copied(scores->Row(i, node)), row_(Joined(prompts[i], trees[i].PathTokens(node))))
          << "request " << i << ", node " << node;
    }
  }
}

// BR-26: after 3, 1 and 0 accepted of 3, committed and cached are 10/9, 8/7 and 7/6.
TEST_F(TargetTest, CommitKeepsTheAcceptedPrefixOfAChain) {
  const std::vector<int32_t> draft = {7, 8, 9};
  for (int32_t num_accepted : {3, 2, 1, 0}) {
    SCOPED_TRACE(num_accepted);
    const TokenTree tree = TokenTree::Chain(draft);
    const SequenceId sequence = *target_.Start(kPrompt);
    ScoreAndCheck(sequence, kPrompt, tree);
    std::vector<int32_t> path;
    for (int32_t i = 0; i < num_accepted; ++i) path.push_back(i);
    ASSERT_THAT(target_.Commit(sequence, tree, path), IsOk());
    EXPECT_EQ(Length(sequence), 6 + num_accepted);

    std::vector<int32_t> committed =
        Joined(kPrompt, std::span<const int32_t>(draft).first(num_accepted));
    committed.push_back(10);
    EXPECT_EQ(Length(sequence), static_cast<int32_t>(committed.size()) - 1);
    ScoreAndCheck(sequence, committed, TokenTree::Chain(std::vector<int32_t>{0, 1}));
  }
}

TEST_F(TargetTest, CommitMovesTheAcceptedPathOfATree) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<int32_t> committed = kPrompt;
    const SequenceId sequence = *target_.Start(committed);
    for (int32_t round = 0; round < 4; ++round) {
      const TokenTree tree = RandomTree(static_cast<int32_t>(random() % 20), random);
      ScoreAndCheck(sequence, committed, tree);
      const auto node = static_cast<int32_t>(random() % (tree.size() + 1)) - 1;
      ASSERT_THAT(target_.Commit(sequence, tree, PathTo(tree, node)), IsOk());
      committed = Joined(committed, tree.PathTokens(node));
      committed.push_back(static_cast<int32_t>(random() % kVocab));
      EXPECT_EQ(Length(sequence), static_cast<int32_t>(committed.size()) - 1);
    }
  }
}

TEST_F(TargetTest, FailedScoreLeavesTheCaches) {
  const SequenceId sequence = *target_.Start(kPrompt);
  const TokenTree tree = TokenTree::Chain(std::vector<int32_t>{7, 8});
  const ScoreRequest request{sequence, kPrompt.back(), &tree};
  model_.FailNext(absl::InternalError("device lost"));
  EXPECT_THAT(target_.Score({&request, 1}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("device lost")));
  EXPECT_EQ(Length(sequence), 5);
  ScoreAndCheck(sequence, kPrompt, tree);
}

TEST_F(TargetTest, ForkedSequencesDoNotShareRounds) {
  const SequenceId first = *target_.Start(kPrompt);
  const SequenceId second = *model_.cache().Fork(first);
  const TokenTree tree = TokenTree::Chain(std::vector<int32_t>{7, 8, 9});
  ScoreAndCheck(first, kPrompt, tree);
  ASSERT_THAT(target_.Commit(first, tree, std::vector<int32_t>{0, 1}), IsOk());
  EXPECT_EQ(Length(second), 5);
  ScoreAndCheck(second, kPrompt, TokenTree::Chain(std::vector<int32_t>{1, 2, 3, 4}));
  ScoreAndCheck(first, {1, 2, 3, 4, 5, 6, 7, 8, 0}, {});
}

}  // namespace
}  // namespace paceline
