#include "base/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

constexpr int32_t kVocabulary = 10;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// root -> 3 (node 0), 5 (node 1); node 1 -> 1 (node 2), 2 (node 3); node 2 -> 5 (node 4)
TokenTree Branching() { return {{3, 5, 1, 2, 5}, {-1, -1, 1, 1, 2}}; }

TEST(TokenTreeTest, EmptyTreeIsSoundAndAChain) {
  const TokenTree tree;
  EXPECT_THAT(tree.Validate(kVocabulary), IsOk());
  EXPECT_TRUE(tree.empty());
  EXPECT_TRUE(tree.IsChain());
  EXPECT_EQ(tree.MaxDepth(), 0);
  EXPECT_THAT(tree.Children(-1), IsEmpty());
}

TEST(TokenTreeTest, ChainIsAChain) {
  const std::vector<int32_t> tokens = {7, 7, 7};
  const TokenTree tree = TokenTree::Chain(tokens);
  EXPECT_THAT(tree.Validate(kVocabulary), IsOk());
  EXPECT_TRUE(tree.IsChain());
  EXPECT_THAT(tree.parents, ElementsAre(-1, 0, 1));
  EXPECT_EQ(tree.MaxDepth(), 3);
  EXPECT_THAT(tree.PathTokens(2), ElementsAre(7, 7, 7));
}

TEST(TokenTreeTest, DepthCountsFromTheRoot) {
  const TokenTree tree = Branching();
  const std::vector<int32_t> depths = {1, 1, 2, 2, 3};
  EXPECT_EQ(tree.Depth(-1), 0);
  for (int32_t i = 0; i < tree.size(); ++i) EXPECT_EQ(tree.Depth(i), depths[i]) << i;
  EXPECT_EQ(tree.MaxDepth(), 3);
  EXPECT_FALSE(tree.IsChain());
}

TEST(TokenTreeTest, ChildrenComeInDraftedOrder) {
  const TokenTree tree = Branching();
  EXPECT_THAT(tree.Children(-1), ElementsAre(0, 1));
  EXPECT_THAT(tree.Children(0), IsEmpty());
  EXPECT_THAT(tree.Children(1), ElementsAre(2, 3));
  EXPECT_THAT(tree.Children(2), ElementsAre(4));
  EXPECT_THAT(tree.Children(4), IsEmpty());
}

TEST(TokenTreeTest, PathTokensRunFromTheRoot) {
  const TokenTree tree = Branching();
  EXPECT_THAT(tree.PathTokens(-1), IsEmpty());
  EXPECT_THAT(tree.PathTokens(0), ElementsAre(3));
  EXPECT_THAT(tree.PathTokens(4), ElementsAre(5, 1, 5));
}

TEST(TokenTreeTest, AddReturnsTheIndex) {
  TokenTree tree;
  EXPECT_EQ(tree.Add(-1, 4), 0);
  EXPECT_EQ(tree.Add(-1, 6), 1);
  EXPECT_EQ(tree.Add(1, 4), 2);
  EXPECT_THAT(tree.tokens, ElementsAre(4, 6, 4));
  EXPECT_THAT(tree.parents, ElementsAre(-1, -1, 1));
}

TEST(TokenTreeTest, SoundTreeIsAccepted) { EXPECT_THAT(Branching().Validate(kVocabulary), IsOk()); }

TEST(TokenTreeTest, VectorsOfDifferentLengthAreRefused) {
  const TokenTree tree{{1, 2}, {-1}};
  EXPECT_THAT(tree.Validate(kVocabulary),
              StatusIs(kInvalid, HasSubstr("parents: expected 2 entries, one a token, got 1")));
}

TEST(TokenTreeTest, ParentsMustComeFirst) {
  EXPECT_THAT((TokenTree{{1, 2}, {-1, 1}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("parents[1]")));
  EXPECT_THAT((TokenTree{{1, 2}, {1, -1}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("parents[0]")));
  EXPECT_THAT((TokenTree{{1}, {-2}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("parents[0]: expected -1 or an earlier node, got -2")));
}

TEST(TokenTreeTest, TokensMustBeInTheVocabulary) {
  EXPECT_THAT((TokenTree{{10}, {-1}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("tokens[0]: expected an id in [0, 10), got 10")));
  EXPECT_THAT((TokenTree{{3, -1}, {-1, 0}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("tokens[1]")));
}

TEST(TokenTreeTest, SiblingsMustDiffer) {
  EXPECT_THAT((TokenTree{{3, 4, 3}, {-1, -1, -1}}.Validate(kVocabulary)),
              StatusIs(kInvalid, HasSubstr("tokens[2]: expected siblings to differ")));
  EXPECT_THAT((TokenTree{{3, 4, 3}, {-1, -1, 1}}.Validate(kVocabulary)), IsOk());
}

}  // namespace
}  // namespace paceline
