#include "sampling/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/sampling/pipeline_fixture.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::Apply;
using testing::ExpectProbs;
using ::testing::HasSubstr;
using testing::History;
using testing::IsOk;
using testing::Kept;
using testing::PlainSoftmax;
using testing::RandomLogits;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::Tokens;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

template <typename Real>
class PipelineTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(PipelineTest, Reals);

TYPED_TEST(PipelineTest, OffValuesAreTheIdentityBitForBit) {
  SamplingOptions written_out;
  written_out.min_tokens = 0;
  written_out.eos_ids = {0};
  written_out.repetition_penalty = 1;
  written_out.frequency_penalty = 0;
  written_out.presence_penalty = 0;
  written_out.penalty_scope = PenaltyScope::kLastN;
  written_out.temperature = 1;
  written_out.top_k = -1;
  written_out.top_p = 1;
  written_out.min_p = 0;
  written_out.min_keep = 3;
  const History history({0}, {0, 0}, {0});
  for (int32_t vocab_size : {1, 3, 111, 49152, 128256}) {
    const auto logits = RandomLogits<TypeParam>(vocab_size, 31);
    Candidates<TypeParam> untouched;
    ASSERT_THAT(untouched.Assign(std::span<const TypeParam>(logits), vocab_size), IsOk());
    Distribution<TypeParam> untouched_row;
    ASSERT_THAT(untouched_row.AssignSoftmax(untouched), IsOk());
    const auto expected = untouched_row.Dense();
    const auto plain = PlainSoftmax(logits);
    const double bound = sizeof(TypeParam) == sizeof(float) ? 1e-6 : 1e-14;
    for (int32_t id = 0; id < vocab_size; ++id) {
      ASSERT_NEAR(expected[id], plain[id], bound);
    }
    for (const SamplingOptions& options : {SamplingOptions(), written_out}) {
      const auto row = Apply(logits, options, history);
      ASSERT_THAT(row, IsOk());
      EXPECT_TRUE(row->ids().empty());
      EXPECT_EQ(row->Dense(), expected) << "seed 31, V " << vocab_size;
    }
  }
}

// top_k beyond the vocabulary filters and keeps everything.
TYPED_TEST(PipelineTest, FiltersThatKeepAllChangeNoProbability) {
  const auto logits = RandomLogits<TypeParam>(111, 32);
  SamplingOptions options;
  options.top_k = 111;
  options.min_p = 1e-30;
  const auto row = Apply(logits, options);
  ASSERT_THAT(row, IsOk());
  const auto expected = PlainSoftmax(logits);
  for (int32_t id = 0; id < 111; ++id) {
    EXPECT_NEAR(row->Prob(id), expected[id], 1e-7) << "seed 32, id " << id;
  }
}

TYPED_TEST(PipelineTest, UnsoundRowsAreRefused) {
  using Row = std::vector<TypeParam>;
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const TypeParam infinity = std::numeric_limits<TypeParam>::infinity();
  SamplingOptions greedy;
  greedy.temperature = 0;
  for (const SamplingOptions& options : {SamplingOptions(), greedy}) {
    EXPECT_THAT(Apply(Row{0, nan}, options),
                StatusIs(kInvalid, AllOf(StartsWith("nan_logit"), HasSubstr("logits[1]"))));
    EXPECT_THAT(Apply(Row{infinity, 0}, options),
                StatusIs(kInvalid, AllOf(StartsWith("inf_logit"), HasSubstr("logits[0]"))));
    EXPECT_THAT(Apply(Row{-infinity, -infinity}, options),
                StatusIs(kFailedPrecondition, StartsWith("no_token_left")));
  }
}

// A row that the request's own settings empty, whatever filters follow.
TYPED_TEST(PipelineTest, RowEmptiedByMasksIsRefused) {
  for (double temperature : {0.0, 0.7, 1.0}) {
    SamplingOptions options;
    options.allowed_ids = {1};
    options.bad_words = {{1}};
    options.temperature = temperature;
    options.top_k = 2;
    options.top_p = 0.5;
    options.min_p = 0.5;
    EXPECT_THAT(Apply(std::vector<TypeParam>{1, 2, 3}, options),
                StatusIs(kFailedPrecondition, StartsWith("no_token_left")))
        << "temperature " << temperature;
  }
}

TYPED_TEST(PipelineTest, RowShorterThanTheVocabularyIsRefused) {
  auto pipeline = Pipeline<TypeParam>::Create({}, 4);
  ASSERT_THAT(pipeline, IsOk());
  const std::vector<TypeParam> row = {1, 2, 3};
  EXPECT_THAT(pipeline->Apply(std::span<const TypeParam>(row), {}),
              StatusIs(kInvalid, HasSubstr("vocab_size = 4")));
}

// What is masked before a filter or a penalty stays masked after it.
TYPED_TEST(PipelineTest, MaskedTokensNeverComeBack) {
  SamplingOptions options;
  options.logit_bias = {{0, 50.0}, {1, -kInfinity}};
  options.repetition_penalty = 0.5;
  options.frequency_penalty = -10;
  options.temperature = 1e6;
  options.min_keep = 4;
  options.top_p = 0.1;
  const TypeParam masked = -std::numeric_limits<TypeParam>::infinity();
  const auto row =
      Apply(std::vector<TypeParam>{masked, 9, 1, 0}, options, History({0, 1}, {0, 1, 1}));
  EXPECT_EQ(Kept(row), (std::set<int32_t>{2, 3}));
}

TYPED_TEST(PipelineTest, NoFilterEmptiesARow) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (int32_t min_keep : {1, 3}) {
      SamplingOptions options;
      options.top_k = 1;
      options.top_p = 0;
      options.min_p = 1;
      options.min_keep = min_keep;
      const auto row = Apply(RandomLogits<TypeParam>(111, seed), options);
      ASSERT_THAT(row, IsOk()) << "seed " << seed;
      EXPECT_EQ(row->NumSurvivors(), min_keep) << "seed " << seed;
    }
  }
}

TEST(SamplingOptionsTest, EveryRefusalNamesItsOption) {
  struct Refusal {
    std::string option;
    std::function<void(SamplingOptions&)> set;
  };
  const std::vector<Refusal> refusals = {
      {"logit_bias", [](auto& o) { o.logit_bias.emplace_back(10, 1.0); }},
      {"logit_bias", [](auto& o) { o.logit_bias.emplace_back(-1, 1.0); }},
      {"logit_bias", [](auto& o) { o.logit_bias.emplace_back(1, kInfinity); }},
      {"logit_bias", [](auto& o) { o.logit_bias.emplace_back(1, kNan); }},
      {"allowed_ids",
       [](auto& o) {
         o.allowed_ids.assign({1, 10});
       }},
      {"eos_ids", [](auto& o) { o.eos_ids.assign({-1}); }},
      {"bad_words",
       [](auto& o) {
         o.bad_words.assign({{1}, {}});
       }},
      {"bad_words",
       [](auto& o) {
         o.bad_words.assign({{1, 10}});
       }},
      {"min_tokens", [](auto& o) { o.min_tokens = -1; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = 0; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = kInfinity; }},
      {"repetition_penalty", [](auto& o) { o.repetition_penalty = kNan; }},
      {"frequency_penalty", [](auto& o) { o.frequency_penalty = kNan; }},
      {"presence_penalty", [](auto& o) { o.presence_penalty = kInfinity; }},
      {"penalty_last_n", [](auto& o) { o.penalty_last_n = -1; }},
      {"temperature", [](auto& o) { o.temperature = -1; }},
      {"temperature", [](auto& o) { o.temperature = kNan; }},
      {"temperature", [](auto& o) { o.temperature = kInfinity; }},
      {"top_k", [](auto& o) { o.top_k = -2; }},
      {"top_p", [](auto& o) { o.top_p = -0.1; }},
      {"top_p", [](auto& o) { o.top_p = 1.1; }},
      {"top_p", [](auto& o) { o.top_p = kNan; }},
      {"min_p", [](auto& o) { o.min_p = -0.1; }},
      {"min_p", [](auto& o) { o.min_p = 1.1; }},
      {"min_p", [](auto& o) { o.min_p = kNan; }},
      {"min_keep", [](auto& o) { o.min_keep = 0; }},
  };
  for (const Refusal& refusal : refusals) {
    SamplingOptions options;
    refusal.set(options);
    const auto matcher =
        StatusIs(kInvalid, AllOf(StartsWith(refusal.option + ": expected"), HasSubstr(", got ")));
    EXPECT_THAT(options.Validate(10), matcher);
    EXPECT_THAT(Pipeline<float>::Create(options, 10), matcher);
  }
  EXPECT_THAT(SamplingOptions().Validate(10), IsOk());
  EXPECT_THAT(SamplingOptions().Validate(0), StatusIs(kInvalid, StartsWith("vocab_size")));
}

TEST(TokenCountsTest, IncrementalCountsEqualRebuiltOnes) {
  TokenCounts incremental;
  Tokens prompt, output;
  for (uint32_t i = 0; i < 200; ++i) {
    const auto token = static_cast<int32_t>(Uniform({41, 0}, {i}) * 12);
    (i < 30 ? prompt : output).push_back(token);
    const Tokens block = {token};
    i < 30 ? incremental.AddPrompt(block) : incremental.AddOutput(block);
    TokenCounts rebuilt;
    rebuilt.AddPrompt(prompt);
    rebuilt.AddOutput(output);
    ASSERT_EQ(incremental, rebuilt) << "seed 41, token " << i;
  }
}

// A drafted ancestor counts exactly as the committed token that it becomes.
TEST(TokenCountsTest, DraftedTokensCountAsCommittedOnes) {
  const auto logits = RandomLogits<double>(12, 43);
  Tokens all;
  for (uint32_t i = 0; i < 40; ++i) {
    all.push_back(static_cast<int32_t>(Uniform({43, 1}, {i}) * 12));
  }
  const Tokens prompt(all.begin(), all.begin() + 8);
  for (PenaltyScope scope : {PenaltyScope::kDefault, PenaltyScope::kPromptAndOutput,
                             PenaltyScope::kOutput, PenaltyScope::kLastN}) {
    SamplingOptions options;
    options.repetition_penalty = 1.3;
    options.frequency_penalty = 0.2;
    options.presence_penalty = 0.1;
    options.penalty_scope = scope;
    options.penalty_last_n = 10;
    const auto expected =
        Apply(logits, options, History(prompt, Tokens(all.begin() + 8, all.end())));
    ASSERT_THAT(expected, IsOk());
    for (int split : {8, 20, 35, 39}) {
      const auto row = Apply(logits, options,
                             History(prompt, Tokens(all.begin() + 8, all.begin() + split),
                                     Tokens(all.begin() + split, all.end())));
      ASSERT_THAT(row, IsOk());
      EXPECT_EQ(row->Dense(), expected->Dense()) << "seed 43, split " << split;
    }
  }
}

TEST(PipelineFloatTest, RowsOfOnePipelineDoNotInteract) {
  SamplingOptions options;
  options.top_p = 0.8;
  options.temperature = 0.7;
  options.frequency_penalty = 0.5;
  auto pipeline = Pipeline<float>::Create(options, 111);
  ASSERT_THAT(pipeline, IsOk());
  const History history({3}, {4, 4, 7});
  for (uint64_t seed : {1, 2, 1, 3, 2}) {
    const auto logits = RandomLogits<float>(111, seed);
    const auto row = pipeline->Apply(std::span<const float>(logits), history.Context());
    const auto alone = Apply(logits, options, history);
    ASSERT_THAT(row, IsOk());
    ASSERT_THAT(alone, IsOk());
    EXPECT_EQ(row->Dense(), alone->Dense()) << "seed " << seed;
  }
}

// Logits at the ends of float32 neither overflow nor turn into NaN.
TEST(PipelineFloatTest, ExtremeLogitsStayFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  SamplingOptions options;
  for (double temperature : {1e-5, 1.0, 2.0}) {
    options.temperature = temperature;
    ExpectProbs(Apply<float>({kLargest, -kLargest, kLargest}, options), {0.5, 0, 0.5});
  }
}

// Valid settings beyond the range of float32 saturate: no NaN row, and nothing masked by them.
TEST(PipelineFloatTest, ExtremeBiasesAndPenaltiesStayFinite) {
  const History history({0, 3}, {0, 3, 3});
  SamplingOptions bias, repetition, frequency;
  bias.logit_bias = {{0, 1e300}, {3, 1e300}};
  repetition.repetition_penalty = 1e-300;
  frequency.frequency_penalty = -1e308;
  for (const SamplingOptions& options : {bias, repetition, frequency}) {
    ExpectProbs(Apply<float>({1, 2, 3, kMasked}, options, history), {1, 0, 0, 0});
  }
}

TEST(PipelineFloatTest, TemperatureBeyondFloat32KeepsMaskedTokensMasked) {
  SamplingOptions options;
  options.temperature = 1e300;
  ExpectProbs(Apply<float>({1, 2, kMasked}, options), {0.5, 0.5, 0});
}

TEST(PipelineFloatTest, RepetitionBeyondFloat32KeepsALogitOfZero) {
  SamplingOptions options;
  options.repetition_penalty = 1e300;
  ExpectProbs(Apply<float>({0, 0, kMasked}, options, History({0}, {})), {0.5, 0.5, 0});
}

// Only -inf bans. Every token is pushed below the range here, and one must still come.
TEST(PipelineFloatTest, EditsBelowTheRangeMaskNothing) {
  const History history({0, 1, 2}, {0, 1, 2});
  SamplingOptions bias, repetition, frequency;
  bias.logit_bias = {{0, -1e300}, {1, -1e300}, {2, -1e300}};
  repetition.repetition_penalty = 1e300;
  frequency.frequency_penalty = 1e308;
  for (const SamplingOptions& options : {bias, repetition, frequency}) {
    const auto row = Apply<float>({-2, -2, -2}, options, history);
    ASSERT_THAT(row, IsOk());
    EXPECT_EQ(row->NumSurvivors(), 3);
  }
}

// Each filter alone.
std::vector<SamplingOptions> Filters() {
  std::vector<SamplingOptions> filters(9);
  filters[0].top_k = 2;
  filters[1].top_p = 0.6;
  filters[2].min_p = 0.3;
  filters[3].typical_p = 0.5;
  filters[4].typical_p = 0.5;
  filters[4].typical_mode = TypicalMode::kLlama;
  filters[5].epsilon_cutoff = 0.2;
  filters[6].eta_cutoff = 0.3;
  filters[7].top_n_sigma = 0.4;
  filters[8].dynatemp_range = 1.0;
  return filters;
}

// Logits in steps, so that some are equal; every third is masked.
std::vector<double> SteppedLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<double> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    logits.push_back(id % 3 == 1 ? -std::numeric_limits<double>::infinity() : std::floor(8 * u) / 2);
  }
  return logits;
}

// A filter keeps a masked token masked, the odds of what it keeps, and min_keep tokens where there
// are so many.
TEST(FilterTest, KeepsOddsMasksAndMinKeep) {
  for (const int32_t vocab_size : {1, 2, 3, 111, 5000}) {
    for (const int32_t min_keep : {1, 3}) {
      for (SamplingOptions options : Filters()) {
        options.min_keep = min_keep;
        const std::vector<double> logits = SteppedLogits(vocab_size, 17);
        auto pipeline = *Pipeline<double>::Create(options, vocab_size);
        const auto row = pipeline.Apply(std::span<const double>(logits), RowContext());
        ASSERT_THAT(row, IsOk());
        const auto all = std::count_if(logits.begin(), logits.end(),
                                       [](double logit) { return std::isfinite(logit); });
        EXPECT_GE(row->NumSurvivors(), std::min<int64_t>(all, min_keep));
        const int32_t best = row->Argmax();
        for (int32_t id = 0; id < vocab_size; ++id) {
          const double prob = row->Prob(id);
          if (prob == 0 || options.dynatemp_range > 0) continue;
          ASSERT_TRUE(std::isfinite(logits[id])) << id;
          EXPECT_NEAR(prob / row->Prob(best), std::exp(logits[id] - logits[best]), 1e-12);
        }
      }
    }
  }
}

// A bigram that drafted ancestors complete is forbidden as one of committed tokens is.
TEST(NoRepeatNgramTest, DraftedAncestorsCount) {
  SamplingOptions options;
  options.no_repeat_ngram_size = 2;
  auto pipeline = *Pipeline<double>::Create(options, 4);
  const std::vector<double> logits(4, 0.0);
  const testing::History committed({0, 1}, {2, 0});
  const testing::History drafted({0, 1}, {2}, {0});
  for (const testing::History* history : {&committed, &drafted}) {
    const auto row = pipeline.Apply(std::span<const double>(logits), history->Context());
    ASSERT_THAT(row, IsOk());
    EXPECT_EQ(row->Prob(1), 0);
    EXPECT_NEAR(row->Prob(0), 1.0 / 3, 1e-12);
  }
}

}  // namespace
}  // namespace paceline
