// A request's settings at every verified row, numeric edges and reported numbers (kinds K1, K2, K4
// and K10 of the public bug reports).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/engine_fixture.h"
#include "tests/support/monte_carlo.h"

namespace paceline {
namespace {

using testing::AlwaysPicks;
using ::testing::AnyOf;
using testing::DraftCase;
using testing::DraftCases;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::EngineSetup;
using testing::ExpectSameForEveryDraft;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::kNever;
using testing::LogitsOf;
using testing::Name;
using testing::RunRounds;
using testing::SameRow;
using testing::Sampled;
using testing::Script;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::TableModel;
using testing::TestEngine;
using testing::With;

std::vector<float> Row(int32_t size, const std::vector<std::pair<int32_t, float>>& logits) {
  std::vector<float> row(size, 0);
  for (const auto& [id, logit] : logits) row[id] = logit;
  return row;
}

// BR-03: a rejection gives one token, taken from the row of the rejected position.
TEST(EngineSettingsTest, RejectionEmitsOneTokenOfItsOwnRow) {
  for (const std::vector<int32_t>& draft : {std::vector<int32_t>{5, 6}, {5}}) {
    TableModel model(10, 64, Script(10, 1, {7, 8, 9}));
    TestEngine vocabulary({.target = SameRow({0}), .vocab_size = 10});
    std::vector<std::vector<int32_t>> rounds;
    Observer observer;
    observer.on_trace = [&](uint32_t, std::span<const TokenTrace> trace) {
      rounds.emplace_back();
      for (const TokenTrace& entry : trace) {
        if (entry.decision != Decision::kRejected) rounds.back().push_back(entry.token);
      }
    };
    const Choice choice =
        RunRounds(model, vocabulary.vocabulary(), Greedy({0}, 3), AlwaysPicks(draft), observer);
    EXPECT_THAT(choice.tokens, ElementsAre(7, 8, 9));
    EXPECT_THAT(rounds, ElementsAre(ElementsAre(7), ElementsAre(8), ElementsAre(9)));
    EXPECT_EQ(model.last_tokens().front(), 8);  // Each pass begins with the token before it.
  }
}

// BR-04, through the loop: draft rows equal to the target's, one-hot and flat ones.
TEST(EngineSettingsTest, EqualRowsNeverFail) {
  for (const auto& logits : {Row(4, {{0, 200}}), Row(4, {})}) {
    TestEngine engine({.target = SameRow(logits), .vocab_size = 4});
    for (const DraftCase& draft : DraftCases()) {
      const Choice choice = engine.RunOne(With(Sampled({1}, 60, 3), draft));
      EXPECT_THAT(choice.tokens, SizeIs(60)) << Name(draft);
      EXPECT_THAT(choice.tokens, Each(AnyOf(0, 1, 2, 3))) << Name(draft);
      if (logits[0] > 0) {
        EXPECT_THAT(choice.tokens, Each(0)) << Name(draft);
      }
    }
  }
}

// BR-05: row i is penalised with the drafts before it.
TEST(EngineSettingsTest, EveryRowIsPenalisedWithItsOwnHistory) {
  const auto row = Row(9, {{7, 5.0f}, {8, 3.5f}});
  auto request = Greedy({0}, 3);
  request.sampling.frequency_penalty = 1.0;
  TestEngine engine({.target = SameRow(row), .vocab_size = 9});
  EXPECT_THAT(ExpectSameForEveryDraft(engine, request).tokens, ElementsAre(7, 7, 8));

  TableModel model(9, 64, SameRow(row));
  request.max_tokens = 4;
  const Choice choice = RunRounds(model, engine.vocabulary(), request, AlwaysPicks({7, 7, 7}));
  EXPECT_EQ(choice.telemetry.acceptance_histogram[2], 1);
}

// BR-06: filters act on every verified row and on the bonus row.
TEST(EngineSettingsTest, AFilteredTokenIsNeverAccepted) {
  const auto row = LogitsOf({0.6, 0.3, 0.08, 0.02});
  auto request = Sampled({0}, 3, 0);
  request.sampling.min_p = 0.2;
  TestEngine engine({.target = SameRow(row), .vocab_size = 4});
  TableModel model(4, 64, SameRow(row));
  std::vector<int64_t> counts(4, 0);
  constexpr int32_t kStreams = testing::NumStreams(30000);
  for (int32_t stream = 0; stream < kStreams; ++stream) {
    const Choice choice =
        RunRounds(model, engine.vocabulary(), request, AlwaysPicks({2}), {}, stream);
    EXPECT_EQ(choice.telemetry.num_accepted_tokens, 0);
    for (int32_t token : choice.tokens) ++counts[token];
  }
  EXPECT_NEAR(counts[0] / (3.0 * kStreams), 2.0 / 3,
              testing::ShareTolerance(2.0 / 3, 3.0 * kStreams));
  EXPECT_NEAR(counts[1] / (3.0 * kStreams), 1.0 / 3,
              testing::ShareTolerance(1.0 / 3, 3.0 * kStreams));
  EXPECT_EQ(counts[2] + counts[3], 0);
}

// BR-07 (a): every committed token of a block updates the counts.
TEST(EngineSettingsTest, AllTokensOfABlockUpdateTheCounts) {
  const auto target = [](std::span<const int32_t> history) {
    const std::vector<int32_t> block = {4, 4, 5};
    const size_t place = history.size() - 1;
    if (place < block.size()) return Row(8, {{block[place], 50.0f}});
    return Row(8, {{4, 3.0f}, {5, 3.0f}, {6, 1.8f}});
  };
  auto request = Greedy({0}, 4);
  request.sampling.frequency_penalty = 0.5;
  request.sampling.presence_penalty = 0.25;
  TestEngine engine({.target = target});
  EXPECT_THAT(ExpectSameForEveryDraft(engine, request).tokens, ElementsAre(4, 4, 5, 5));
}

// BR-07 (b): min_tokens counts tokens, not rounds.
TEST(EngineSettingsTest, MinTokensHoldsTheEndBackInsideABlock) {
  constexpr int32_t kEos = 6;
  const auto row = Row(8, {{kEos, 10.0f}, {5, 9.0f}});
  auto request = Greedy({5, kEos, 5}, 12);
  request.sampling.min_tokens = 4;
  TestEngine engine({.target = SameRow(row), .end_ids = {kEos}});
  EXPECT_THAT(ExpectSameForEveryDraft(engine, request).tokens, ElementsAre(5, 5, 5, 5, kEos));
  TableModel model(8, 64, SameRow(row));
  const Choice choice = RunRounds(model, engine.vocabulary(), request, AlwaysPicks({5, kEos, 5}));
  EXPECT_THAT(choice.tokens, ElementsAre(5, 5, 5, 5, kEos));
  EXPECT_EQ(choice.finish_reason, FinishReason::kStop);
}

// BR-14.
TEST(EngineSettingsTest, TemperatureZeroTakesTheLowestOfEqualMaxima) {
  auto request = Greedy({0}, 50);
  request.sampling.top_p = 0.9;
  TestEngine engine({.target = SameRow({1.0f, 3.0f, 3.0f, kNever}), .vocab_size = 4});
  EXPECT_THAT(ExpectSameForEveryDraft(engine, request).tokens, Each(1));
  request.sampling.temperature = -1;
  EXPECT_THAT(engine.engine().Generate(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("temperature")));
}

// BR-16: masked tokens stay impossible in every row of a batch; greedy rows are not scaled.
TEST(EngineSettingsTest, MaskedLogitsStayImpossible) {
  const auto target = [](std::span<const int32_t> history) -> std::vector<float> {
    if (history.front() == 0) return {kNever, 1, 0};
    return {0, 0, kNever};
  };
  TestEngine engine(
      {.target = target, .vocab_size = 3, .context_length = 4096, .draft_context_length = 4096});
  for (const DraftCase& draft : {DraftCase{DraftKind::kModel, 4},
                                 {DraftKind::kNgram, 4},
                                 {DraftKind::kEarlyExit, 2},
                                 {DraftKind::kNone, 4}}) {
    SCOPED_TRACE(Name(draft));
    const auto results =
        engine.RunAll({With(Greedy({0}, 500), draft), With(Sampled({1}, 4000, 9), draft)});
    EXPECT_THAT(results[0].choices[0].tokens, Each(1));
    const auto& tokens = results[1].choices[0].tokens;
    EXPECT_THAT(tokens, Each(AnyOf(0, 1)));
    EXPECT_NEAR(std::count(tokens.begin(), tokens.end(), 0) / 4000.0, 0.5, 0.025);
  }
}

// BR-34.
TEST(EngineLogProbsTest, ComeFromTheTargetsRowAtThatPlace) {
  auto request = Greedy({0}, 3);
  request.num_logprobs = 2;
  TestEngine engine({.target = SameRow(LogitsOf({0.7, 0.2, 0.1})), .vocab_size = 3});
  ExpectSameForEveryDraft(engine, request);
  TableModel model(3, 64, SameRow(LogitsOf({0.7, 0.2, 0.1})));
  const Choice choice = RunRounds(model, engine.vocabulary(), request, AlwaysPicks({0, 0, 1}));
  EXPECT_THAT(choice.tokens, ElementsAre(0, 0, 0));
  ASSERT_THAT(choice.raw_logprobs, SizeIs(3));
  for (const LogProbs& entry : choice.raw_logprobs) {
    EXPECT_NEAR(entry.emitted.log_prob, -0.3567, 1e-4);
    ASSERT_THAT(entry.top, SizeIs(2));
    EXPECT_EQ(entry.top[1].token, 1);
    EXPECT_NEAR(entry.top[1].log_prob, -1.6094, 1e-4);
  }
}

// BR-35.
TEST(EngineLogProbsTest, RawAndProcessedAreBothReported) {
  auto request = Sampled({0}, 6, 5);
  request.sampling.temperature = 0.5;
  request.sampling.top_k = 1;  // Token 0 is emitted.
  request.num_logprobs = 0;
  TestEngine engine({.target = SameRow({2, 1, 0}), .vocab_size = 3});
  EXPECT_NEAR(ExpectSameForEveryDraft(engine, request).raw_logprobs[0].emitted.log_prob, -0.4076,
              1e-4);
  request.sampling.top_k = 0;
  request.sampling.logit_bias = {};
  request.speculation.verify = "match";
  const Choice choice = ExpectSameForEveryDraft(engine, request);
  for (size_t i = 0; i < choice.tokens.size(); ++i) {
    if (choice.tokens[i] != 0) continue;
    EXPECT_NEAR(choice.raw_logprobs[i].emitted.log_prob, -0.4076, 1e-4);
    EXPECT_NEAR(choice.processed_logprobs[i].emitted.log_prob, -0.1429, 1e-4);
  }
}

// BR-31 (b): a vocabulary of 4, logit widths 6 and 5, the padding the most likely of all.
TEST(EngineSettingsTest, HeadsMayBePaddedDifferently) {
  TableModel target(6, 64, SameRow({0, 1, 0, 2, 50, 60}));
  TableModel draft(5, 64, SameRow({0, 2, 0, 1, 70}));
  Engine engine({&target, &draft, {4, {}, [](int32_t) { return "a"; }}}, {});
  for (double temperature : {0.0, 1.0}) {
    auto request = With(Sampled({0}, 50, 1), {DraftKind::kModel, 3});
    request.sampling.temperature = temperature;
    const auto result = engine.Generate(request);
    ASSERT_THAT(result, testing::IsOk());
    EXPECT_THAT(result->choices[0].tokens, SizeIs(50));
    EXPECT_THAT(result->choices[0].tokens, Each(AnyOf(0, 1, 2, 3)));
  }
}

// BR-46, BR-31 (b): ids without a token are never sampled; a bias for one is refused.
TEST(EngineSettingsTest, PaddingIsNeverEmitted) {
  TestEngine engine({.target = SameRow({0, 1, 0, 2, 50, 60}), .vocab_size = 4, .width = 6});
  for (double temperature : {0.0, 5.0}) {
    auto request = Sampled({0}, 60, 1);
    request.sampling.temperature = temperature;
    request.num_logprobs = 4;
    request.speculation.verify = "match";
    EXPECT_THAT(ExpectSameForEveryDraft(engine, request).tokens, Each(AnyOf(0, 1, 2, 3)));
    request.sampling.logit_bias = {{5, 100.0}};
    EXPECT_THAT(engine.engine().Generate(request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("logit_bias")));
  }
}

}  // namespace
}  // namespace paceline
