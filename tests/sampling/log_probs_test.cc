#include "sampling/log_probs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sampling/pipeline.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::IsOk;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> LogOf(const std::vector<double>& probs) {
  std::vector<float> logits;
  for (double prob : probs) logits.push_back(static_cast<float>(std::log(prob)));
  return logits;
}

Distribution<float> Warped(const std::vector<float>& logits, const SamplingOptions& options) {
  auto pipeline = Pipeline<float>::Create(options, static_cast<int32_t>(logits.size()));
  EXPECT_THAT(pipeline, IsOk());
  auto row = pipeline->Apply(std::span<const float>(logits), {});
  EXPECT_THAT(row, IsOk());
  return *std::move(row);
}

void ExpectEntry(const TokenLogProb& entry, int32_t token, double log_prob) {
  EXPECT_EQ(entry.token, token);
  if (std::isinf(log_prob)) {
    EXPECT_EQ(entry.log_prob, log_prob);
  } else {
    EXPECT_NEAR(entry.log_prob, log_prob, 1e-4);
  }
}

// BR-34: the target row [0.7, 0.2, 0.1], whatever was drafted.
TEST(LogProbsTest, TargetRowIsReported) {
  const LogProbs raw = RawLogProbs(LogOf({0.7, 0.2, 0.1}), 3, 0, 2);
  const LogProbs processed = ProcessedLogProbs(Warped(LogOf({0.7, 0.2, 0.1}), {}), 0, 2);
  for (const LogProbs& log_probs : {raw, processed}) {
    ExpectEntry(log_probs.emitted, 0, -0.3567);
    ASSERT_EQ(log_probs.top.size(), 2u);
    ExpectEntry(log_probs.top[0], 0, -0.3567);
    ExpectEntry(log_probs.top[1], 1, -1.6094);
  }
}

// BR-35: raw before, processed after every stage.
TEST(LogProbsTest, RawAndProcessedDiffer) {
  const std::vector<float> logits = {2, 1, 0};
  SamplingOptions options;
  options.temperature = 0.5;
  ExpectEntry(RawLogProbs(logits, 3, 0, 0).emitted, 0, -0.4076);
  ExpectEntry(ProcessedLogProbs(Warped(logits, options), 0, 0).emitted, 0, -0.1429);
}

TEST(LogProbsTest, NoTopIsAskedFor) {
  EXPECT_TRUE(RawLogProbs(LogOf({0.5, 0.5}), 2, 1, 0).top.empty());
  EXPECT_TRUE(ProcessedLogProbs(Warped({0, 0}, {}), 1, 0).top.empty());
}

TEST(LogProbsTest, TiesComeInOrderOfId) {
  const std::vector<float> logits = {0, 2, 1, 2, 2};
  for (const LogProbs& log_probs :
       {RawLogProbs(logits, 5, 1, 3), ProcessedLogProbs(Warped(logits, {}), 1, 3)}) {
    ASSERT_EQ(log_probs.top.size(), 3u);
    EXPECT_EQ(log_probs.top[0].token, 1);
    EXPECT_EQ(log_probs.top[1].token, 3);
    EXPECT_EQ(log_probs.top[2].token, 4);
  }
}

TEST(LogProbsTest, EmittedTokenIsAddedAtTheEnd) {
  const std::vector<float> logits = LogOf({0.7, 0.2, 0.1});
  for (const LogProbs& log_probs :
       {RawLogProbs(logits, 3, 2, 1), ProcessedLogProbs(Warped(logits, {}), 2, 1)}) {
    ASSERT_EQ(log_probs.top.size(), 2u);
    ExpectEntry(log_probs.top[0], 0, -0.3567);
    ExpectEntry(log_probs.top[1], 2, std::log(0.1));
    ExpectEntry(log_probs.emitted, 2, std::log(0.1));
  }
}

TEST(LogProbsTest, MoreThanTheVocabularyGivesAll) {
  EXPECT_EQ(RawLogProbs(LogOf({0.7, 0.2, 0.1}), 3, 2, 20).top.size(), 3u);
}

TEST(LogProbsTest, FilteredTokenIsMinusInfinity) {
  SamplingOptions options;
  options.top_k = 1;
  const LogProbs log_probs = ProcessedLogProbs(Warped({2, 1, 0}, options), 1, 3);
  ExpectEntry(log_probs.emitted, 1, -kInfinity);
  ExpectEntry(log_probs.top[0], 0, 0);
  ExpectEntry(log_probs.top[1], 1, -kInfinity);
}

TEST(LogProbsTest, PaddingIsNoPartOfTheRow) {
  const std::vector<float> padded = {2, 1, 0, 50};
  ExpectEntry(RawLogProbs(padded, 3, 0, 9).emitted, 0, -0.4076);
  EXPECT_EQ(RawLogProbs(padded, 3, 0, 9).top.size(), 3u);
  EXPECT_NEAR(RawEntropyBits(padded, 3), RawEntropyBits(std::vector<float>{2, 1, 0}, 3), 1e-12);
}

TEST(LogProbsTest, RawEntropyOfKnownRows) {
  EXPECT_NEAR(RawEntropyBits(LogOf({0.5, 0.25, 0.125, 0.125}), 4), 1.75, 1e-6);
  EXPECT_NEAR(RawEntropyBits(LogOf({0.5, 0, 0.5}), 3), 1, 1e-6);
  EXPECT_NEAR(RawEntropyBits(std::vector<float>{5}, 1), 0, 1e-12);
}

}  // namespace
}  // namespace paceline
