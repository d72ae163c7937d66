// Orders of stages, and the stages that look at repetitions, coins and surprise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "sampling/dry.h"
#include "sampling/xtc.h"
#include "tests/sampling/pipeline_fixture.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::Apply;
using testing::History;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Kept;
using testing::LogOf;
using testing::RandomLogits;
using testing::StatusIs;
using testing::Tokens;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

absl::Status Created(const SamplingOptions& options) {
  return Pipeline<float>::Create(options, 8).status();
}

TEST(OrderTest, AnOrderThatCannotBeHonouredIsRefusedByName) {
  SamplingOptions options;
  options.order = {"top_k", "nucleus"};
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("names of stages, got nucleus")));
  options.order = {"top_k", "top_k"};
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("every stage once, got top_k again")));
  options.order = {"top_k", "penalties"};
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("before filters, got penalties")));
  options.order = {"temperature", "top_p"};
  options.min_p = 0.1;
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("the stage min_p, which is on")));
  options.order = {"vllm"};
  EXPECT_THAT(Created(options), IsOk());
  options.xtc_probability = 0.5;
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("xtc, which is on, got vllm")));
}

TEST(OrderTest, MirostatStandsAlone) {
  SamplingOptions options;
  options.mirostat_tau = 3;
  EXPECT_THAT(Created(options), IsOk());
  options.top_k = 4;
  EXPECT_THAT(Created(options), StatusIs(kInvalid, HasSubstr("no filter beside it, got top_k")));
}

// Temperature 0 asks no filter, wherever it stands: the edits decide.
TEST(OrderTest, TemperatureZeroTakesTheArgmaxOfTheEdits) {
  for (const char* order : {"default", "hf", "vllm", "llama", "flashinfer-joint"}) {
    SamplingOptions options;
    options.order = {order};
    options.temperature = 0;
    options.top_k = 2;
    options.logit_bias = {{2, 5.0}};
    EXPECT_EQ(Kept(Apply<float>({1, 3, 0, 2}, options)), (std::set<int32_t>{2})) << order;
  }
}

TEST(OrderTest, AnExplicitOrderRunsAsItIsWritten) {
  SamplingOptions options;
  options.top_k = 2;
  options.top_p = 0.6;
  const auto row = LogOf({0.4, 0.3, 0.2, 0.1});
  options.order = {"top_k", "top_p"};  // Renormalised to .571, .429 first.
  EXPECT_EQ(Kept(Apply<float>(row, options)), (std::set<int32_t>{0, 1}));
  options.top_p = 0.55;
  EXPECT_EQ(Kept(Apply<float>(row, options)), (std::set<int32_t>{0}));
  options.order = {"top_p", "top_k"};
  EXPECT_EQ(Kept(Apply<float>(row, options)), (std::set<int32_t>{0, 1}));
}

// ---- DRY against its definition.

std::map<int32_t, double> NaivePenalties(const Tokens& window, const SamplingOptions& options) {
  const auto size = static_cast<int64_t>(window.size());
  int64_t limit = size;
  int64_t best_start = -1;
  size_t best_length = 0;
  for (const Tokens& breaker : options.dry_breakers) {
    for (int64_t start = 0; start + std::ssize(breaker) <= size; ++start) {
      if (!std::equal(breaker.begin(), breaker.end(), window.begin() + start)) continue;
      if (start < best_start || (start == best_start && breaker.size() < best_length)) continue;
      best_start = start;
      best_length = breaker.size();
      limit = size - start - std::ssize(breaker);
    }
  }
  std::map<int32_t, int64_t> lengths;
  for (int64_t j = 0; j + 1 < size; ++j) {
    int64_t length = 0;
    while (length <= j && length < limit && window[j - length] == window[size - 1 - length]) ++length;
    if (length < options.dry_allowed_length) continue;
    lengths[window[j + 1]] = std::max(lengths[window[j + 1]], length);
  }
  std::map<int32_t, double> penalties;
  for (const auto& [token, length] : lengths) {
    const bool breaks = std::find(options.dry_breakers.begin(), options.dry_breakers.end(),
                                  Tokens{token}) != options.dry_breakers.end();
    if (breaks) continue;
    penalties[token] = options.dry_multiplier *
                       std::pow(options.dry_base,
                                static_cast<double>(length - options.dry_allowed_length));
  }
  return penalties;
}

TEST(DryTest, AgreesWithItsDefinitionOnRandomHistories) {
  constexpr int32_t kVocab = 4;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const auto noise = [&](uint32_t i) { return TokenUniform({seed, 3}, {}, i); };
    Tokens tokens(static_cast<size_t>(noise(0) * 40));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(noise(static_cast<uint32_t>(i) + 10) * (kVocab - 1));
    }
    SamplingOptions options;
    options.dry_multiplier = 0.7;
    options.dry_base = 1.3;
    options.dry_allowed_length = static_cast<int32_t>(noise(1) * 4);
    options.dry_penalty_last_n = noise(2) < 0.5 ? -1 : static_cast<int32_t>(1 + noise(3) * 20);
    if (noise(4) < 0.5) options.dry_breakers = {{0}, {1, 2}, {0, 1}};
    const size_t split = tokens.size() / 3;
    const History history(Tokens(tokens.begin(), tokens.begin() + split), {},
                          Tokens(tokens.begin() + split, tokens.end()));
    Candidates<double> candidates;
    const std::vector<double> zeros(kVocab, 0.0);
    ASSERT_THAT(candidates.Assign(std::span<const double>(zeros), kVocab), IsOk());
    ApplyDry(candidates, options, history.Context());
    const int64_t size = options.dry_penalty_last_n < 0
                             ? std::ssize(tokens)
                             : std::min<int64_t>(options.dry_penalty_last_n, std::ssize(tokens));
    const auto expected = NaivePenalties(Tokens(tokens.end() - size, tokens.end()), options);
    for (int32_t id = 0; id < kVocab; ++id) {
      const auto found = expected.find(id);
      EXPECT_NEAR(candidates.logit(id), found == expected.end() ? 0.0 : -found->second, 1e-12)
          << "seed " << seed << ", token " << id;
    }
  }
}

// ---- XTC.

TEST(XtcTest, TheCoinBelongsToThePositionAlone) {
  SamplingOptions options;
  options.xtc_probability = 0.5;
  const auto row = LogOf({0.4, 0.3, 0.2, 0.1});
  auto pipeline = *Pipeline<float>::Create(options, 4);
  int left_out = 0;
  for (uint32_t position = 0; position < 2000; ++position) {
    RowContext context;
    context.key = {5, 1};
    context.position = position;
    const auto first = pipeline.Apply(std::span<const float>(row), context);
    context.offset = 3;
    context.node = 2;
    const auto second = pipeline.Apply(std::span<const float>(row), context);
    ASSERT_EQ(Kept(first), Kept(second));
    left_out += first->Prob(0) == 0;
  }
  EXPECT_NEAR(left_out / 2000.0, 0.5, 0.045);  // Four standard deviations.
}

TEST(XtcTest, RulesThatLookAheadHaveACoinForEachRoundAndNode) {
  SamplingOptions options;
  options.xtc_probability = 0.5;
  const auto row = LogOf({0.4, 0.3, 0.2, 0.1});
  auto pipeline = *Pipeline<float>::Create(options, 4);
  std::set<std::vector<int>> patterns;
  for (uint32_t position = 0; position < 100; ++position) {
    std::vector<int> pattern;
    for (uint16_t node = 0; node < 3; ++node) {
      RowContext context;
      context.position = position;
      context.node = node;
      context.xtc_by_round = true;
      pattern.push_back(pipeline.Apply(std::span<const float>(row), context)->Prob(0) == 0);
    }
    patterns.insert(pattern);
  }
  EXPECT_EQ(patterns.size(), 8u);
}

TEST(XtcTest, EdgesLeaveTheRowAlone) {
  SamplingOptions options;
  options.xtc_probability = 1;
  const std::set<int32_t> all = {0, 1, 2, 3};
  options.min_keep = 4;
  EXPECT_EQ(Kept(Apply<float>(LogOf({0.4, 0.3, 0.2, 0.1}), options)), all);
  options.min_keep = 1;
  options.xtc_threshold = 0.35;
  EXPECT_EQ(Kept(Apply<float>(LogOf({0.4, 0.3, 0.2, 0.1}), options)), all);
  // Of equal tokens the last in rank order stays.
  options.xtc_threshold = 0.25;
  EXPECT_EQ(Kept(Apply<float>(LogOf({0.25, 0.25, 0.25, 0.25}), options)), (std::set<int32_t>{3}));
  // Behind a filter too.
  options.top_k = 3;
  options.xtc_threshold = 0.1;
  EXPECT_EQ(Kept(Apply<float>(LogOf({0.4, 0.3, 0.2, 0.1}), options)), (std::set<int32_t>{2}));
}

}  // namespace
}  // namespace paceline
