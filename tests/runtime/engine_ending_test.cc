// What ends a request, wherever in a block it lies (kinds K6 and K7 of the public bug reports).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine_fixture.h"

namespace paceline {
namespace {

using testing::AlwaysPicks;
using testing::DraftCase;
using testing::DraftCases;
using ::testing::ElementsAre;
using testing::EngineSetup;
using testing::ExpectSameForEveryDraft;
using testing::Greedy;
using testing::HashedRows;
using ::testing::IsEmpty;
using testing::Name;
using testing::RunRounds;
using testing::Script;
using ::testing::SizeIs;
using testing::TableModel;
using testing::TestEngine;
using testing::With;

constexpr int32_t kVocab = 26;
constexpr int32_t kEos = 25;

// Plain greedy output is `script`, then token 0 for ever.
EngineSetup Scripted(std::vector<int32_t> script) {
  return {.target = Script(kVocab, 1, std::move(script)), .vocab_size = kVocab, .end_ids = {kEos}};
}

// BR-19 (a stop token): the first ending in token order wins over the budget.
TEST(EngineEndingTest, StopTokenInsideABlockEndsTheRequest) {
  TestEngine engine(Scripted({10, 11, 12, 20, 21, 22}));
  auto request = Greedy({0}, 5);
  request.stop_ids = {12};
  request.num_logprobs = 1;
  const Choice plain = ExpectSameForEveryDraft(engine, request);
  EXPECT_THAT(plain.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(plain.text, "kl");
  EXPECT_EQ(plain.finish_reason, FinishReason::kStop);
}

// BR-19 (a stop string that the token's text completes).
TEST(EngineEndingTest, StopStringInsideABlockEndsTheRequest) {
  TestEngine engine(Scripted({10, 11, 12, 20, 21, 22}));
  auto request = Greedy({0}, 5);
  request.stop = {"lm"};
  request.num_logprobs = 1;
  const Choice plain = ExpectSameForEveryDraft(engine, request);
  EXPECT_THAT(plain.tokens, ElementsAre(10, 11, 12));
  EXPECT_EQ(plain.text, "k");
  EXPECT_EQ(plain.finish_reason, FinishReason::kStop);
}

// BR-20.
TEST(EngineEndingTest, EndTokenAnywhereInABlockEndsTheRequest) {
  for (int32_t place = 0; place < 9; ++place) {
    SCOPED_TRACE(place);
    std::vector<int32_t> script = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    script[place] = kEos;
    TestEngine engine(Scripted(script));
    const Choice plain = ExpectSameForEveryDraft(engine, Greedy({0}, 12));
    EXPECT_THAT(plain.tokens, SizeIs(place + 1));
    EXPECT_EQ(plain.tokens.back(), kEos);
    EXPECT_EQ(plain.finish_reason, FinishReason::kStop);
    EXPECT_EQ(plain.text, std::string("bcdefghijklm").substr(0, place));
  }
}

// BR-20 (ignore_eos).
TEST(EngineEndingTest, IgnoredEndTokenIsATokenLikeAnyOther) {
  TestEngine engine(Scripted({21, 22, kEos, 23, 24}));
  auto request = Greedy({0}, 5);
  request.ignore_eos = true;
  const Choice plain = ExpectSameForEveryDraft(engine, request);
  EXPECT_THAT(plain.tokens, ElementsAre(21, 22, kEos, 23, 24));
  EXPECT_EQ(plain.finish_reason, FinishReason::kLength);
}

TEST(EngineEndingTest, WhatWasDraftedBehindAnEndingDoesNotCount) {
  TableModel model(kVocab, 64, Script(kVocab, 1, {21, 22, kEos, 23, 24}));
  TestEngine engine(Scripted({}));
  const Choice choice =
      RunRounds(model, engine.vocabulary(), Greedy({0}, 20), AlwaysPicks({21, 22, kEos, 23}));
  EXPECT_THAT(choice.tokens, ElementsAre(21, 22, kEos));
  EXPECT_EQ(choice.telemetry.num_draft_tokens, 3);
  EXPECT_EQ(choice.telemetry.num_accepted_tokens, 3);
  EXPECT_EQ(choice.telemetry.num_emitted_tokens, 3);
  EXPECT_EQ(choice.telemetry.expected_acceptance.count, 3);
}

// BR-21: a block whose pieces are 'a', 'EN', 'D', then 13 times 'b'.
TEST(EngineEndingTest, StopStringAcrossPiecesOfOneBlock) {
  EngineSetup setup = Scripted({1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4});
  setup.pieces.resize(kVocab, "x");
  setup.pieces[1] = "a";
  setup.pieces[2] = "EN";
  setup.pieces[3] = "D";
  TestEngine engine(setup);
  auto request = Greedy({0}, 30);
  request.stop = {"END"};
  const Choice plain = ExpectSameForEveryDraft(engine, request);
  EXPECT_EQ(plain.text, "a");
  const Choice wide = engine.RunOne(With(request, {DraftKind::kModel, 16}));
  EXPECT_THAT(wide.tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(wide.text, "a");
  EXPECT_EQ(wide.finish_reason, FinishReason::kStop);
}

// BR-21 (second case): 'E' ends one block, 'N', 'D' begin the next.
TEST(EngineEndingTest, StopStringAcrossBlocksIsNeverDelivered) {
  EngineSetup setup = Scripted({1, 1, 2, 3, 4, 5, 5, 5});
  setup.pieces.resize(kVocab, "x");
  setup.pieces[2] = "E";
  setup.pieces[3] = "N";
  setup.pieces[4] = "D";
  TestEngine engine(setup);
  auto request = Greedy({0}, 30);
  request.stop = {"END"};
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    std::string delivered;
    Observer observer;
    observer.on_token = [&](const EmittedToken& token) { delivered += token.text; };
    const Choice choice = engine.RunOne(With(request, draft), observer);
    EXPECT_EQ(delivered, "xx");
    EXPECT_EQ(choice.text, "xx");
  }
}

// BR-22: every ending can be combined with every draft source, on a model that repeats itself.
TEST(EngineEndingTest, EveryEndingWithEveryDraftSource) {
  const auto cycle = [](std::span<const int32_t> history) {
    std::vector<float> row(kVocab, 0);
    row[(history.back() + 1) % 7] = 10;
    return row;
  };
  TestEngine engine({.target = cycle, .vocab_size = kVocab, .end_ids = {kEos}});
  for (const char* stop : {"cd", "gab", "f", "abcdefga", "zz"}) {
    SCOPED_TRACE(stop);
    auto request = Greedy({0, 1, 2, 3, 4, 5, 6, 0}, 24);
    request.stop = {stop};
    const Choice plain = ExpectSameForEveryDraft(engine, request);
    EXPECT_EQ(plain.text.find(stop), std::string::npos);
  }
}

// BR-23.
TEST(EngineLimitTest, NeverMoreThanMaxTokens) {
  TestEngine engine({.target = HashedRows(8, 2, 3.0)});
  for (int32_t max_tokens = 0; max_tokens < 12; ++max_tokens) {
    SCOPED_TRACE(max_tokens);
    const Choice plain = ExpectSameForEveryDraft(engine, Greedy({1, 2}, max_tokens));
    EXPECT_THAT(plain.tokens, SizeIs(max_tokens));
    EXPECT_EQ(plain.finish_reason, FinishReason::kLength);
  }
}

TEST(EngineLimitTest, DraftsLeaveRoomForTheRoundsOwnToken) {
  TestEngine engine({.target = HashedRows(8, 2, 3.0)});
  const Choice choice = engine.RunOne(With(Greedy({1, 2}, 2), {DraftKind::kModel, 3}));
  EXPECT_EQ(choice.telemetry.num_draft_tokens, 1);
  EXPECT_EQ(engine.RunOne(With(Greedy({1, 2}, 1), {DraftKind::kModel, 3})).telemetry.num_drafts, 0);
}

// BR-24: context 16, prompt 12.
TEST(EngineLimitTest, ContextEndsTheRequestAsInPlainDecoding) {
  for (int32_t prompt_length = 1; prompt_length < 16; ++prompt_length) {
    SCOPED_TRACE(prompt_length);
    TestEngine engine(
        {.target = HashedRows(8, 2, 3.0), .context_length = 16, .draft_context_length = 16});
    const Choice plain = ExpectSameForEveryDraft(
        engine, Greedy(std::vector<int32_t>(static_cast<size_t>(prompt_length), 1), 40));
    EXPECT_THAT(plain.tokens, SizeIs(16 - prompt_length));
    EXPECT_EQ(plain.finish_reason, FinishReason::kLength);
    EXPECT_LE(engine.target().largest_position(), 15);
    EXPECT_LE(engine.draft().largest_position(), 15);
  }
}

// BR-25.
TEST(EngineLimitTest, DraftingPausesAtTheEndOfTheDraftsContext) {
  for (int32_t prompt_length : {6, 8, 10}) {
    SCOPED_TRACE(prompt_length);
    TestEngine engine({.target = HashedRows(8, 2, 3.0), .draft_context_length = 8});
    const auto request = Greedy(std::vector<int32_t>(static_cast<size_t>(prompt_length), 3), 12);
    const Choice plain = ExpectSameForEveryDraft(engine, request);
    EXPECT_THAT(plain.tokens, SizeIs(12));
    EXPECT_LT(engine.draft().largest_position(), 8);
    const Choice choice = engine.RunOne(With(request, {DraftKind::kModel, 4}));
    EXPECT_EQ(choice.telemetry.num_draft_tokens, std::max(0, 8 - prompt_length));
  }
}

// BR-37: rounds of 5 and 5 with 8 tokens asked for; then a stop at the 2nd token of the 2nd block.
TEST(EngineLimitTest, CountsAreThoseOfDeliveredTokens) {
  TestEngine engine(Scripted({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  auto request = With(Greedy({0}, 8), {DraftKind::kModel, 4});
  Choice choice = engine.RunOne(request);
  EXPECT_THAT(choice.tokens, SizeIs(8));
  EXPECT_EQ(choice.telemetry.num_emitted_tokens, 8);
  EXPECT_EQ(choice.finish_reason, FinishReason::kLength);
  request.max_tokens = 20;
  request.stop_ids = {7};
  choice = engine.RunOne(request);
  EXPECT_THAT(choice.tokens, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(choice.telemetry.num_emitted_tokens, 7);
  EXPECT_EQ(choice.finish_reason, FinishReason::kStop);
}

TEST(EngineLimitTest, NoTokensAskedForGivesAnEmptyAnswer) {
  TestEngine engine({.target = HashedRows(8, 2, 3.0), .context_length = 4});
  const Choice choice = ExpectSameForEveryDraft(engine, Greedy({1, 2, 3, 4}, 0));
  EXPECT_THAT(choice.tokens, IsEmpty());
  EXPECT_EQ(choice.text, "");
  EXPECT_EQ(choice.finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace paceline
