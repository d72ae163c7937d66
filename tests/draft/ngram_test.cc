#include "draft/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

std::vector<int32_t> Draft(std::vector<int32_t> history, int32_t min_n, int32_t max_n,
                           int32_t max_tokens) {
  NgramDrafter drafter({max_n, min_n});
  DraftRequest request;
  request.committed = history;
  request.max_tokens = max_tokens;
  const auto proposal = drafter.Propose(request);
  EXPECT_THAT(proposal, IsOk());
  EXPECT_TRUE(proposal->deterministic());
  EXPECT_TRUE(proposal->tree.IsChain());
  EXPECT_THAT(proposal->Validate(1000), IsOk());
  return proposal->tree.tokens;
}

// The definition, written from its end: of all earlier places of all lengths the best one.
std::vector<int32_t> NaiveDraft(const std::vector<int32_t>& history, int32_t min_n, int32_t max_n,
                                int32_t max_tokens) {
  const auto size = static_cast<int32_t>(history.size());
  std::pair<int32_t, int32_t> best = {0, 0};  // Length of the match, place behind it.
  for (int32_t behind = 1; behind < size; ++behind) {
    for (int32_t n = min_n; n <= std::min(max_n, behind); ++n) {
      bool equal = true;
      for (int32_t i = 1; i <= n; ++i) equal &= history[behind - i] == history[size - i];
      if (equal) best = std::max(best, {n, behind});
    }
  }
  if (best.first == 0) return {};
  const int32_t end = std::min(size, best.second + max_tokens);
  return {history.begin() + best.second, history.begin() + end};
}

// BR-29.
TEST(NgramDrafterTest, PrefersTheLongestThenTheMostRecentMatch) {
  const std::vector<int32_t> history = {3, 7, 8, 2, 3, 4, 6, 3, 5, 9, 2, 3};
  EXPECT_THAT(Draft(history, 1, 2, 3), ElementsAre(4, 6, 3));
  EXPECT_THAT(Draft(history, 1, 1, 3), ElementsAre(5, 9, 2));
  EXPECT_THAT(Draft(history, 3, 4, 3), IsEmpty());
}

// BR-30.
TEST(NgramDrafterTest, ProposesNothingWithoutAMatch) {
  EXPECT_THAT(Draft({1, 2, 3, 4}, 1, 3, 3), IsEmpty());
  EXPECT_THAT(Draft({7}, 1, 3, 3), IsEmpty());
  EXPECT_THAT(Draft({}, 1, 3, 3), IsEmpty());
  EXPECT_THAT(Draft({7, 7}, 1, 3, 3), ElementsAre(7));
}

TEST(NgramDrafterTest, RunsIntoTheEndingItself) {
  EXPECT_THAT(Draft({5, 1, 2, 3, 1, 2}, 1, 2, 10), ElementsAre(3, 1, 2));
  EXPECT_THAT(Draft({1, 2, 1, 2}, 1, 2, 10), ElementsAre(1, 2));
}

TEST(NgramDrafterTest, NeverProposesMoreThanAsked) {
  EXPECT_THAT(Draft({1, 2, 3, 4, 5, 1}, 1, 2, 1), ElementsAre(2));
  EXPECT_THAT(Draft({1, 2, 3, 4, 5, 1}, 1, 2, 3), ElementsAre(2, 3, 4));
}

TEST(NgramDrafterTest, EqualsTheDefinitionOnRandomHistories) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> history(random() % 30);
    const uint32_t vocab = 1 + random() % 4;
    for (int32_t& token : history) token = static_cast<int32_t>(random() % vocab);
    const auto min_n = static_cast<int32_t>(1 + random() % 3);
    const auto max_n = min_n + static_cast<int32_t>(random() % 4);
    const auto count = static_cast<int32_t>(1 + random() % 8);
    ASSERT_EQ(Draft(history, min_n, max_n, count), NaiveDraft(history, min_n, max_n, count))
        << "seed " << seed;
  }
}

TEST(NgramOptionsTest, RefusesLengthsThatContradict) {
  EXPECT_THAT(NgramOptions({3, 1}).Validate(), IsOk());
  EXPECT_THAT(NgramOptions({1, 1}).Validate(), IsOk());
  EXPECT_THAT(NgramOptions({3, 0}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("min_n 0")));
  EXPECT_THAT(NgramOptions({2, 3}).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_n 2")));
}

}  // namespace
}  // namespace paceline
