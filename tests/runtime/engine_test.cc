// Whatever the draft, the answer is that of plain decoding: greedy, and by rule `match`.
#include "runtime/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/engine_fixture.h"

namespace paceline {
namespace {

using testing::Blend;
using testing::DraftCase;
using testing::DraftCases;
using testing::EngineSetup;
using testing::ExpectSameAnswer;
using testing::ExpectSameForEveryDraft;
using testing::Greedy;
using testing::HashedRows;
using testing::IsOk;
using testing::Name;
using testing::Plain;
using testing::Sampled;
using testing::TestEngine;
using testing::With;

// A target, and a draft and first layers that are partly right.
EngineSetup RandomSetup(std::mt19937& random) {
  EngineSetup setup;
  setup.vocab_size = static_cast<int32_t>(3 + random() % 8);
  setup.target = HashedRows(setup.vocab_size, random(), 3.0);
  const double share = (random() % 11) / 10.0;
  setup.draft = Blend(setup.target, HashedRows(setup.vocab_size, random(), 3.0), share);
  setup.early = Blend(setup.target, HashedRows(setup.vocab_size, random(), 3.0), 1 - share);
  if (random() % 2) setup.end_ids = {static_cast<int32_t>(random() % setup.vocab_size)};
  setup.context_length = static_cast<int32_t>(random() % 3 ? 64 : 12 + random() % 10);
  setup.draft_context_length = static_cast<int32_t>(random() % 3 ? 64 : 6 + random() % 12);
  return setup;
}

// Settings of every stage that keeps its meaning at temperature 0.
void AddSettings(const EngineSetup& setup, std::mt19937& random, GenerationRequest& request) {
  SamplingOptions& sampling = request.sampling;
  if (random() % 2) sampling.repetition_penalty = 1.0 + (random() % 10) / 10.0;
  if (random() % 2) sampling.frequency_penalty = (random() % 10) / 10.0;
  if (random() % 2) sampling.presence_penalty = (random() % 10) / 10.0;
  if (random() % 3 == 0) sampling.penalty_scope = PenaltyScope::kLastN;
  sampling.penalty_last_n = static_cast<int32_t>(random() % 6);
  if (random() % 2) sampling.min_tokens = static_cast<int32_t>(random() % 8);
  if (random() % 3 == 0) sampling.logit_bias = {{0, 1.5}, {1, testing::kNever}};
  if (random() % 4 == 0) sampling.bad_words = {{2, 0}, {1}};
  if (random() % 4 == 0) request.stop_ids = {static_cast<int32_t>(random() % setup.vocab_size)};
  if (random() % 3 == 0) request.stop = {"ab", "cc"};
  if (random() % 3 == 0) request.ignore_eos = true;
  if (random() % 3 == 0) request.num_logprobs = static_cast<int32_t>(random() % 3);
}

void AddFilters(std::mt19937& random, SamplingOptions& sampling) {
  sampling.temperature = 0.3 + (random() % 15) / 10.0;
  if (random() % 2) sampling.top_k = static_cast<int32_t>(1 + random() % 5);
  if (random() % 2) sampling.top_p = 0.5 + (random() % 5) / 10.0;
  if (random() % 2) sampling.min_p = (random() % 4) / 10.0;
}

std::vector<int32_t> RandomPrompt(const EngineSetup& setup, std::mt19937& random) {
  std::vector<int32_t> prompt(1 + random() % 10);
  for (int32_t& token : prompt) token = static_cast<int32_t>(random() % setup.vocab_size);
  return prompt;
}

TEST(EngineTest, GreedyAnswerIsThatOfPlainDecoding) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const EngineSetup setup = RandomSetup(random);
    TestEngine engine(setup);
    auto request = Greedy(RandomPrompt(setup, random), static_cast<int32_t>(random() % 30));
    AddSettings(setup, random, request);
    ExpectSameForEveryDraft(engine, request);
    if (::testing::Test::HasFailure()) return;
  }
}

// The target draws every token itself: one seed, one answer.
TEST(EngineTest, SampledAnswerOfMatchIsThatOfPlainDecoding) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const EngineSetup setup = RandomSetup(random);
    TestEngine engine(setup);
    auto request = Sampled(RandomPrompt(setup, random), static_cast<int32_t>(random() % 30), seed);
    AddSettings(setup, random, request);
    AddFilters(random, request.sampling);
    request.speculation.verify = "match";
    ExpectSameForEveryDraft(engine, request);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EngineTest, SampledAnswerOfStandardWithLookupIsThatOfPlainDecoding) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const EngineSetup setup = RandomSetup(random);
    TestEngine engine(setup);
    auto request = Sampled(RandomPrompt(setup, random), 25, seed);
    AddFilters(random, request.sampling);
    const Choice plain = engine.RunOne(Plain(request));
    for (int32_t num_draft_tokens : {1, 2, 4, 7}) {
      ExpectSameAnswer(engine.RunOne(With(request, {DraftKind::kNgram, num_draft_tokens})), plain);
    }
  }
}

// BR-28, and the ending inside a block: what was drafted behind it does not count.
TEST(EngineTest, DraftEqualToTheTargetIsAlwaysAccepted) {
  for (double temperature : {0.0, 1.0}) {
    for (uint32_t seed = 0; seed < 30; ++seed) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", temperature " << temperature);
      EngineSetup setup{.target = HashedRows(8, seed, 3.0)};
      if (seed % 2) setup.end_ids = {3};
      TestEngine engine(setup);
      auto request = Sampled({1, 2, 3}, 50, seed);
      request.sampling.temperature = temperature;
      for (const DraftCase& draft : DraftCases()) {
        if (draft.kind == DraftKind::kNgram) continue;
        const Choice choice = engine.RunOne(With(request, draft));
        if (choice.telemetry.num_drafts > 0) {
          EXPECT_EQ(choice.telemetry.AcceptanceRate(), 1.0) << Name(draft);
          EXPECT_NEAR(*choice.telemetry.expected_acceptance.Value(), 1.0, 1e-5) << Name(draft);
        }
      }
    }
  }
}

TEST(EngineTest, DraftingSavesTargetPasses) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0)});
  const int64_t before = engine.target().num_passes();
  const Choice choice = engine.RunOne(With(Greedy({1, 2}, 40), {DraftKind::kModel, 7}));
  EXPECT_EQ(choice.tokens.size(), 40u);
  EXPECT_EQ(engine.target().num_passes() - before, 1 + 5);  // The prompt; 5 rounds of 8 tokens.
  EXPECT_EQ(choice.telemetry.num_rounds, 5);
}

TEST(EngineTest, ReportsSeedRuleAndPrompt) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0)});
  auto request = Sampled({1, 2, 3}, 4, 99);
  GenerationResult result = engine.Run(request);
  EXPECT_EQ(result.seed, 99u);
  EXPECT_EQ(result.prompt_tokens, 3);
  EXPECT_EQ(result.rule, "standard");
  EXPECT_TRUE(result.lossless);
  request.speculation.verify = "match";
  EXPECT_EQ(engine.Run(request).rule, "match");
  request.sampling.temperature = 0;
  EXPECT_EQ(engine.Run(request).rule, "greedy");
}

TEST(EngineTest, RequestsWithoutASeedGetDifferentOnesThatReplay) {
  TestEngine engine({.target = HashedRows(8, 1, 0.1)});
  auto request = Sampled({1}, 30, 0);
  request.seed = std::nullopt;
  const GenerationResult first = engine.Run(request);
  const GenerationResult second = engine.Run(request);
  EXPECT_NE(first.seed, second.seed);
  EXPECT_NE(first.choices[0].tokens, second.choices[0].tokens);
  request.seed = second.seed;
  ExpectSameAnswer(engine.RunOne(request), second.choices[0]);
}

}  // namespace
}  // namespace paceline
