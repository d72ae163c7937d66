// Behaviour cases from public bug reports (BR-xx), as far as one row of logits shows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/philox.h"
#include "sampling/dry.h"
#include "sampling/pipeline.h"
#include "tests/sampling/pipeline_fixture.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::Apply;
using ::testing::ElementsAre;
using testing::ExpectProbs;
using ::testing::HasSubstr;
using testing::History;
using testing::IsOk;
using testing::Kept;
using testing::LogOf;
using testing::PlainSoftmax;
using testing::StatusIs;
using testing::Tokens;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// BR-05: row i is penalised with the drafted tokens before it, as plain decoding would.
TEST(PipelineBehaviourTest, PenaltiesSeeTheDraftedAncestors) {
  SamplingOptions options;
  options.temperature = 0;
  options.frequency_penalty = 1;
  std::vector<float> logits(10, 0);
  logits[7] = 5.0;
  logits[8] = 3.5;
  Tokens drafted, plain;
  for (int i = 0; i < 3; ++i) {
    const auto verified = Apply(logits, options, History({}, {}, drafted));
    const auto decoded = Apply(logits, options, History({}, plain));
    ASSERT_THAT(verified, IsOk());
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(verified->Argmax(), decoded->Argmax());
    drafted.push_back(7);
    plain.push_back(decoded->Argmax());
  }
  EXPECT_THAT(plain, ElementsAre(7, 7, 8));
}

// BR-06: a filtered token has no probability in any verified row.
TEST(PipelineBehaviourTest, MinPActsOnVerifiedRows) {
  SamplingOptions options;
  options.min_p = 0.2;
  for (const Tokens& drafted : {Tokens{}, Tokens{2}, Tokens{2, 0}}) {
    const auto row = Apply(LogOf({0.6, 0.3, 0.08, 0.02}), options, History({1}, {}, drafted));
    ExpectProbs(row, {2.0 / 3, 1.0 / 3, 0, 0});
    EXPECT_EQ(row->Prob(2), 0);
  }
}

// BR-07 (a): every token of a committed block updates the counts.
TEST(PipelineBehaviourTest, CommittedBlockIsCountedTokenByToken) {
  SamplingOptions options;
  options.frequency_penalty = 0.5;
  options.presence_penalty = 0.25;
  const std::vector<double> logits = {-50, -50, -50, -50, 3.0, 3.0, 1.8};
  const std::vector<double> adjusted = {-50, -50, -50, -50, 1.75, 2.25, 1.8};
  ExpectProbs(Apply(logits, options, History({}, {4, 4, 5})), PlainSoftmax(adjusted), 1e-12);
  options.temperature = 0;
  EXPECT_EQ(Apply(logits, options, History({}, {4, 4, 5}))->Argmax(), 5);
}

// BR-07 (b): min_tokens counts tokens, drafted ones too.
TEST(PipelineBehaviourTest, MinTokensCountsTokens) {
  constexpr int32_t kEos = 2;
  SamplingOptions options;
  options.temperature = 0;
  options.min_tokens = 4;
  options.eos_ids = {kEos};
  const std::vector<float> logits = {0, 0, 10, 0, 0, 9};
  for (int length = 0; length <= 6; ++length) {
    for (int committed = 0; committed <= length; ++committed) {
      const History history({1, 1, 1, 1, 1}, Tokens(committed, 5), Tokens(length - committed, 5));
      const auto row = Apply(logits, options, history);
      ASSERT_THAT(row, IsOk());
      EXPECT_EQ(row->Argmax(), length < 4 ? 5 : kEos) << committed << " of " << length;
    }
  }
}

// BR-08: divided above 0, multiplied below, once for each distinct token.
TEST(PipelineBehaviourTest, RepetitionPenaltyCountsATokenOnce) {
  SamplingOptions options;
  options.repetition_penalty = 1.5;
  const std::vector<double> logits = {2.0, -2.0, -2.5};
  const History history({0, 1}, {1, 1});
  const std::vector<double> adjusted = {2.0 / 1.5, -3.0, -2.5};
  ExpectProbs(Apply(logits, options, history), PlainSoftmax(adjusted), 1e-12);
  options.repetition_penalty = 1.0;
  EXPECT_EQ(Apply(logits, options, history)->Dense(), Apply(logits, {}, history)->Dense());
}

// BR-09: the smallest set of most likely tokens whose mass is at least top_p.
TEST(PipelineBehaviourTest, TopPKeepsTheTokenThatCrosses) {
  SamplingOptions options;
  const auto logits = LogOf({0.5, 0.3, 0.2});
  options.top_p = 0.6;
  ExpectProbs(Apply(logits, options), {0.625, 0.375, 0});
  options.top_p = 0.5;
  EXPECT_EQ(Kept(Apply(logits, options)), (std::set<int32_t>{0}));
  options.top_p = 1.0;
  ExpectProbs(Apply(logits, options), {0.5, 0.3, 0.2});
}

// BR-11: off-values and values beyond the vocabulary keep all; pipelines do not interact.
TEST(PipelineBehaviourTest, TopKOfDifferentRequestsDoesNotInteract) {
  const std::vector<float> logits = {0, 3, 1, 2};
  const std::set<int32_t> all = {0, 1, 2, 3};
  SamplingOptions options;
  for (int32_t top_k : {0, -1, 4, 10}) {
    options.top_k = top_k;
    EXPECT_EQ(Kept(Apply(logits, options)), all) << "top_k " << top_k;
  }
  auto open = Pipeline<float>::Create({}, 4);
  options.top_k = 2;
  auto narrow = Pipeline<float>::Create(options, 4);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(Kept(open->Apply(std::span<const float>(logits), {})), all);
    EXPECT_EQ(Kept(narrow->Apply(std::span<const float>(logits), {})), (std::set<int32_t>{1, 3}));
  }
}

// BR-14: temperature 0 is the argmax, ties to the lowest id, filters skipped.
TEST(PipelineBehaviourTest, TemperatureZeroIsTheArgmax) {
  SamplingOptions options;
  options.temperature = 0;
  options.top_p = 0.9;
  options.top_k = 3;
  options.min_keep = 4;
  auto pipeline = Pipeline<float>::Create(options, 4);
  ASSERT_THAT(pipeline, IsOk());
  const std::vector<float> logits = {1, 3, 3, -std::numeric_limits<float>::infinity()};
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto row = pipeline->Apply(std::span<const float>(logits), {});
    ASSERT_THAT(row, IsOk());
    ASSERT_EQ(row->Draw(Uniform({47, 0}, {i})), 1);
    ASSERT_EQ(row->Prob(1), 1);
  }
  options.temperature = -1;
  EXPECT_THAT(Pipeline<float>::Create(options, 4), StatusIs(kInvalid, HasSubstr("temperature")));
}

// BR-15: every positive temperature gives a finite row. The logits are float16 values.
TEST(PipelineBehaviourTest, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits = {11.0625f, 2.955078125f, 2.875f};
  SamplingOptions options;
  for (double temperature : {1e-300, 1e-40, 1e-5, 1e-4, 1e-3}) {
    options.temperature = temperature;
    ExpectProbs(Apply(logits, options), {1, 0, 0}, 0);
    options.top_p = 0.9;
    options.min_p = 0.1;
    ExpectProbs(Apply(logits, options), {1, 0, 0}, 0);
    options = {};
  }
  for (double temperature : {1e6, 1e38, 1e300}) {
    options.temperature = temperature;
    ExpectProbs(Apply(logits, options), {1.0 / 3, 1.0 / 3, 1.0 / 3}, 1e-5);
  }
}

// BR-16: -inf stays impossible, beside a greedy row and at temperature 1.
TEST(PipelineBehaviourTest, MaskedTokensStayImpossible) {
  const float masked = -std::numeric_limits<float>::infinity();
  SamplingOptions greedy_options;
  greedy_options.temperature = 0;
  auto greedy = Pipeline<float>::Create(greedy_options, 3);
  auto sampled = Pipeline<float>::Create({}, 3);
  const std::vector<float> row_a = {masked, 1, 0};
  const std::vector<float> row_b = {0, 0, masked};
  int zeros = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    const double u = Uniform({53, 0}, {i});
    ASSERT_EQ(greedy->Apply(std::span<const float>(row_a), {})->Draw(u), 1);
    const int32_t token = sampled->Apply(std::span<const float>(row_b), {})->Draw(u);
    ASSERT_THAT(token, ::testing::AnyOf(0, 1));
    zeros += token == 0;
  }
  EXPECT_NEAR(zeros / 10000.0, 0.5, 0.02) << "seed 53";
}

// BR-10: the tokens nearest to the entropy, until their mass reaches typical_p; their probabilities
// stay true to each other.
TEST(PipelineBehaviourTest, TypicalKeepsTheNearestToTheEntropy) {
  SamplingOptions options;
  const auto row = LogOf({0.5, 0.25, 0.125, 0.125});
  options.typical_p = 0.6;
  const auto wide = Apply(row, options);
  ExpectProbs(wide, {2.0 / 3, 1.0 / 3, 0, 0});
  EXPECT_EQ(wide->Argmax(), 0);
  options.typical_p = 0.2;
  ExpectProbs(Apply(row, options), {0, 1, 0, 0});
  options.typical_p = 1;
  ExpectProbs(Apply(row, options), {0.5, 0.25, 0.125, 0.125});
}

// BR-12: all but the least likely of those that reach the threshold go; the probability alone gives
// no surprise, and a threshold of 0 is refused.
TEST(PipelineBehaviourTest, XtcLeavesTheLeastLikelyOfTheTop) {
  SamplingOptions options;
  options.xtc_probability = 1;
  ExpectProbs(Apply(LogOf({0.6, 0.3, 0.06, 0.04}), options), {0, 0.75, 0.15, 0.10});
  ExpectProbs(Apply(LogOf({0.9, 0.06, 0.04}), options), {0.9, 0.06, 0.04});
  options.xtc_threshold = 0.15;
  ExpectProbs(Apply(LogOf({0.4, 0.3, 0.2, 0.1}), options), {0, 0, 2.0 / 3, 1.0 / 3});
  options.xtc_threshold = 0.6;
  ExpectProbs(Apply(LogOf({0.4, 0.3, 0.2, 0.1}), options), {0.4, 0.3, 0.2, 0.1});
  options.xtc_threshold = 0;
  EXPECT_THAT(Apply(LogOf({0.4, 0.3, 0.2, 0.1}), options),
              StatusIs(kInvalid, HasSubstr("xtc_threshold")));
}

// BR-13: multiplier * base^(match - allowed) from the allowed length on, never past a breaker, finite.
TEST(PipelineBehaviourTest, DryPenalisesWhatRepeats) {
  const auto penalties = [](const Tokens& history, const SamplingOptions& options) {
    Candidates<float> candidates;
    const std::vector<float> zeros(10, 0.0f);
    EXPECT_THAT(candidates.Assign(std::span<const float>(zeros), 10), IsOk());
    ApplyDry(candidates, options, History(history, {}).Context());
    std::map<int32_t, float> lowered;
    for (int32_t id = 0; id < 10; ++id) {
      if (candidates.logit(id) != 0) lowered[id] = -candidates.logit(id);
    }
    return lowered;
  };
  SamplingOptions options;
  options.dry_multiplier = 1;
  const Tokens repeated = {1, 2, 3, 9, 1, 2, 3};
  EXPECT_EQ(penalties(repeated, options), (std::map<int32_t, float>{{9, 1.75f}}));
  options.dry_breakers = {{2}};
  EXPECT_TRUE(penalties(repeated, options).empty());
  options.dry_breakers = {};
  options.dry_allowed_length = 4;
  EXPECT_TRUE(penalties(repeated, options).empty());
  options.dry_allowed_length = 2;
  const auto strong = penalties(Tokens(2000, 5), options);
  ASSERT_EQ(strong.size(), 1u);
  EXPECT_GT(strong.at(5), 1e6f);
  EXPECT_TRUE(std::isfinite(strong.at(5)));
}

}  // namespace
}  // namespace paceline
