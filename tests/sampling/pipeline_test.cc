#include "sampling/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

using Tokens = std::vector<int32_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

// Owns what a HistoryView points to.
struct History {
  History(Tokens prompt, Tokens output, Tokens drafted_tokens = {})
      : committed(prompt), prompt_length(static_cast<int32_t>(prompt.size())) {
    counts.AddPrompt(prompt);
    counts.AddOutput(output);
    committed.insert(committed.end(), output.begin(), output.end());
    drafted = std::move(drafted_tokens);
  }
  RowContext Context() const {
    RowContext context;
    context.history = {committed, prompt_length, drafted, &counts};
    return context;
  }

  Tokens committed, drafted;
  int32_t prompt_length;
  TokenCounts counts;
};

template <typename Real>
absl::StatusOr<Distribution<Real>> Apply(const std::vector<Real>& logits,
                                         const SamplingOptions& options,
                                         const History& history = History({}, {})) {
  auto pipeline = Pipeline<Real>::Create(options, static_cast<int32_t>(logits.size()));
  if (!pipeline.ok()) return pipeline.status();
  return pipeline->Apply(std::span<const Real>(logits), history.Context());
}

std::vector<float> LogOf(const std::vector<double>& probs) {
  std::vector<float> logits;
  for (double prob : probs) logits.push_back(static_cast<float>(std::log(prob)));
  return logits;
}

template <typename Real>
void ExpectProbs(const absl::StatusOr<Distribution<Real>>& row, const std::vector<double>& expected,
                 double tolerance = 1e-6) {
  ASSERT_THAT(row, IsOk());
  for (size_t id = 0; id < expected.size(); ++id) {
    EXPECT_NEAR(row->Prob(static_cast<int32_t>(id)), expected[id], tolerance) << "id " << id;
  }
}

template <typename Real>
std::set<int32_t> Kept(const absl::StatusOr<Distribution<Real>>& row) {
  EXPECT_THAT(row, IsOk());
  std::set<int32_t> kept;
  for (int32_t id = 0; id < row->vocab_size(); ++id) {
    if (row->Prob(id) > 0) kept.insert(id);
  }
  return kept;
}

template <typename Real>
std::vector<Real> RandomLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<Real> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    logits.push_back(u < 0.1 && id > 0 ? -std::numeric_limits<Real>::infinity()
                                       : static_cast<Real>(12 * u - 6));
  }
  return logits;
}

template <typename Real>
std::vector<Real> PlainSoftmax(const std::vector<Real>& logits) {
  const Real max = *std::max_element(logits.begin(), logits.end());
  double mass = 0;
  for (Real logit : logits) mass += std::exp(logit - max);
  std::vector<Real> probs;
  for (Real logit : logits) probs.push_back(static_cast<Real>(std::exp(logit - max) / mass));
  return probs;
}

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
  for (int32_t vocab_size : {1, 3, 111, 49152}) {
    const auto logits = RandomLogits<TypeParam>(vocab_size, 31);
    const auto expected = PlainSoftmax(logits);
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
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{10, 1.0}};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{-1, 1.0}};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{1, kInfinity}};
       }},
      {"logit_bias",
       [](auto& o) {
         o.logit_bias = {{1, kNan}};
       }},
      {"allowed_ids",
       [](auto& o) {
         o.allowed_ids = {1, 10};
       }},
      {"eos_ids", [](auto& o) { o.eos_ids = {-1}; }},
      {"bad_words",
       [](auto& o) {
         o.bad_words = {{1}, {}};
       }},
      {"bad_words",
       [](auto& o) {
         o.bad_words = {{1, 10}};
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

TEST(PipelineBehaviourTest, RowsOfOnePipelineDoNotInteract) {
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
  EXPECT_EQ(Apply(logits, options, history)->Dense(), PlainSoftmax(logits));
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

// Logits at the ends of float32 neither overflow nor turn into NaN.
TEST(PipelineBehaviourTest, ExtremeLogitsStayFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  SamplingOptions options;
  for (double temperature : {1e-5, 1.0, 2.0}) {
    options.temperature = temperature;
    ExpectProbs(Apply<float>({kLargest, -kLargest, kLargest}, options), {0.5, 0, 0.5});
  }
}

// Valid settings beyond the range of float32 saturate instead of making a NaN row.
TEST(PipelineBehaviourTest, ExtremeBiasesAndPenaltiesStayFinite) {
  const float masked = -std::numeric_limits<float>::infinity();
  const History history({0, 3}, {0, 3, 3});
  SamplingOptions bias, repetition, frequency;
  bias.logit_bias = {{0, 1e300}, {3, 1e300}};
  repetition.repetition_penalty = 1e-300;
  frequency.frequency_penalty = -1e308;
  for (const SamplingOptions& options : {bias, repetition, frequency}) {
    ExpectProbs(Apply<float>({1, 2, 3, masked}, options, history), {1, 0, 0, 0});
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

}  // namespace
}  // namespace paceline
