// Requests together, several choices, cancelling and failures: none disturbs another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/engine_fixture.h"

namespace paceline {
namespace {

using ::testing::AnyOf;
using testing::Blend;
using testing::DraftCase;
using testing::DraftCases;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::EngineSetup;
using testing::ExpectSameAnswer;
using testing::Greedy;
using testing::HashedRows;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::Name;
using testing::Plain;
using testing::SameRow;
using testing::Sampled;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::TableModel;
using testing::TestEngine;
using testing::With;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

EngineSetup Usual(int32_t max_batch = 8) {
  const auto target = HashedRows(8, 4, 2.0);
  return {.target = target,
          .draft = Blend(target, HashedRows(8, 5, 2.0), 0.6),
          .early = Blend(target, HashedRows(8, 6, 2.0), 0.4),
          .max_batch = max_batch};
}

// Requests of every source, greedy and sampled, of different lengths.
std::vector<GenerationRequest> Mixed() {
  std::vector<GenerationRequest> requests;
  int32_t i = 0;
  for (const DraftCase& draft : DraftCases()) {
    ++i;
    auto request = With(Sampled({i % 8, (i * 3) % 8, 1}, 5 + i % 17, i), draft);
    request.sampling.temperature = i % 3 == 0 ? 0 : 0.8;
    requests.push_back(request);
  }
  requests.push_back(Plain(Sampled({7, 7}, 20, 5)));
  return requests;
}

// Rows of sequences that begin with token 7 hold a NaN once they are `length` tokens long.
TableModel::RowFunction NanAt(TableModel::RowFunction row, size_t length) {
  return [=](std::span<const int32_t> history) {
    std::vector<float> logits = row(history);
    if (history.front() == 7 && history.size() == length) logits[2] = kNan;
    return logits;
  };
}

TEST(EngineBatchTest, TogetherEqualsAlone) {
  TestEngine alone(Usual());
  const auto requests = Mixed();
  for (int32_t max_batch : {1, 2, 8, 20}) {
    TestEngine together(Usual(max_batch));
    const auto results = together.RunAll(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "max_batch " << max_batch << ", request " << i);
      ExpectSameAnswer(results[i].choices[0], alone.RunOne(requests[i]));
    }
  }
}

// BR-17: alone, again, and beside others that share its seed, have another, or none.
TEST(EngineBatchTest, OneSeedGivesOneAnswerWhateverTheNeighbours) {
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    TestEngine engine(Usual());
    const auto request = With(Sampled({1, 2, 3}, 50, 42), draft);
    const Choice alone = engine.RunOne(request);
    ExpectSameAnswer(engine.RunOne(request), alone);
    auto unseeded = With(Sampled({6}, 30, 0), draft);
    unseeded.seed = std::nullopt;
    const auto results = engine.RunAll({With(Sampled({4}, 40, 42), draft), request,
                                        With(Sampled({5, 5}, 20, 43), draft), unseeded});
    ExpectSameAnswer(results[1].choices[0], alone);
    for (const GenerationResult& result : results) {
      EXPECT_THAT(result.choices[0].tokens, Each(::testing::Lt(8)));
    }
    EXPECT_THAT(results[3].choices[0].tokens, SizeIs(30));
  }
}

// BR-18.
TEST(EngineBatchTest, ChoicesDifferAndReplay) {
  for (int32_t max_batch : {1, 3, 8}) {
    TestEngine engine({.target = SameRow(std::vector<float>(1000, 0)),
                       .vocab_size = 1000,
                       .max_batch = max_batch});
    auto request = With(Sampled({1}, 8, 7), {DraftKind::kModel, 4});
    request.num_choices = 4;
    const GenerationResult first = engine.Run(request);
    const GenerationResult second = engine.Run(request);
    std::set<std::vector<int32_t>> different;
    for (size_t i = 0; i < 4; ++i) {
      different.insert(first.choices[i].tokens);
      ExpectSameAnswer(second.choices[i], first.choices[i]);
    }
    EXPECT_THAT(different, SizeIs(4));
    request.num_choices = 1;
    ExpectSameAnswer(engine.RunOne(request), first.choices[0]);
  }
}

// The kept ones are those of the largest mean log-probability, best first, and each is the choice
// that its stream gives alone.
TEST(EngineBatchTest, BestOfKeepsTheLikeliest) {
  TestEngine engine(Usual());
  auto request = With(Sampled({1, 2}, 6, 7), {DraftKind::kModel, 3});
  request.num_logprobs = 0;
  request.num_choices = 6;
  const GenerationResult all = engine.Run(request);
  request.num_choices = 2;
  request.best_of = 6;
  const GenerationResult best = engine.Run(request);
  ASSERT_THAT(best.choices, SizeIs(2));
  const auto mean = [](const Choice& choice) {
    double sum = 0;
    for (const LogProbs& token : choice.processed_logprobs) sum += token.emitted.log_prob;
    EXPECT_NEAR(sum, choice.cumulative_log_prob, 1e-5);
    return choice.cumulative_log_prob / static_cast<double>(choice.tokens.size());
  };
  std::vector<double> means;
  for (const Choice& choice : all.choices) means.push_back(mean(choice));
  std::sort(means.begin(), means.end(), std::greater<>());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(mean(best.choices[i]), means[i]);
    ExpectSameAnswer(best.choices[i], all.choices[best.choices[i].stream]);
  }
}

TEST(EngineBatchTest, ChoicesShareOnePassOverThePrompt) {
  TestEngine engine(Usual());
  auto request = Plain(Sampled({1, 2, 3, 4}, 6, 7));
  request.num_choices = 5;
  const auto result = engine.Run(request);
  EXPECT_EQ(engine.target().num_passes(), 1 + 6);
  EXPECT_THAT(result.choices, SizeIs(5));
}

TEST(EngineBatchTest, BatchBelowOneIsOne) {
  TestEngine engine(Usual(0));
  EXPECT_THAT(engine.RunOne(Plain(Greedy({1}, 5))).tokens, SizeIs(5));
}

TEST(EngineBatchTest, FinishedSequencesMakeRoom) {
  TestEngine engine(Usual(2));
  std::vector<GenerationRequest> requests;
  for (int32_t length : {1, 30, 0, 2, 3}) requests.push_back(Plain(Greedy({1}, length)));
  std::vector<uint32_t> order;
  Observer observer;
  observer.on_token = [&](const EmittedToken& token) { order.push_back(token.choice); };
  engine.RunAll(requests, observer);
  // The long one goes on while the others come and go.
  EXPECT_EQ(order.back(), 1u);
  EXPECT_EQ(std::count(order.begin(), order.end(), 4u), 3);
}

// A row that cannot be used ends its own request with kInternal.
TEST(EngineFailureTest, NanRowFailsItsRequestAlone) {
  EngineSetup setup = Usual();
  TestEngine sound(setup);
  setup.target = NanAt(setup.target, 9);
  TestEngine engine(setup);
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    const std::vector<GenerationRequest> requests = {With(Sampled({1, 2}, 20, 1), draft),
                                                     With(Sampled({7, 2}, 20, 2), draft),
                                                     With(Greedy({3}, 20), draft)};
    const auto results = engine.RunAll(requests);
    const Choice& failed = results[1].choices[0];
    EXPECT_THAT(failed.status, StatusIs(absl::StatusCode::kInternal, HasSubstr("nan_logit")));
    EXPECT_EQ(failed.finish_reason, FinishReason::kInterrupted);
    EXPECT_LE(failed.tokens.size(), 7u);
    ExpectSameAnswer(results[0].choices[0], sound.RunOne(requests[0]));
    ExpectSameAnswer(results[2].choices[0], sound.RunOne(requests[2]));
    const auto whole = sound.RunOne(requests[1]).tokens;
    EXPECT_TRUE(std::equal(failed.tokens.begin(), failed.tokens.end(), whole.begin()));
  }
}

TEST(EngineFailureTest, NanRowOfTheDraftFailsItsRequestAlone) {
  EngineSetup setup = Usual();
  TestEngine sound(setup);
  setup.draft = NanAt(setup.draft, 9);
  TestEngine engine(setup);
  const DraftCase draft = {DraftKind::kModel, 4};
  const auto results =
      engine.RunAll({With(Greedy({1}, 20), draft), With(Greedy({7, 2}, 20), draft)});
  EXPECT_THAT(results[1].choices[0].status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("nan_logit")));
  ExpectSameAnswer(results[0].choices[0], sound.RunOne(With(Greedy({1}, 20), draft)));
}

TEST(EngineFailureTest, FailedTargetPassEndsTheBatchWithItsStatus) {
  EngineSetup setup = Usual();
  TestEngine* self = nullptr;
  setup.target = [&, row = setup.target](std::span<const int32_t> history) {
    if (history.size() == 6) self->target().FailNext(absl::InternalError("device lost"));
    return row(history);
  };
  TestEngine engine(setup);
  self = &engine;
  auto request = Plain(Greedy({1, 2, 3}, 20));
  const Choice choice = engine.RunOne(request);
  EXPECT_THAT(choice.status, StatusIs(absl::StatusCode::kInternal, HasSubstr("device lost")));
  EXPECT_THAT(choice.tokens, SizeIs(4));
  EXPECT_EQ(choice.finish_reason, FinishReason::kInterrupted);
}

TEST(EngineFailureTest, FailedPromptFailsEveryChoice) {
  TestEngine engine(Usual());
  auto request = With(Greedy({1, 2, 3}, 20), {DraftKind::kModel, 4});
  engine.target().FailNext(absl::ResourceExhaustedError("no memory"));
  const Choice choice = engine.RunOne(request);
  EXPECT_THAT(choice.status,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no memory")));
  EXPECT_THAT(choice.tokens, IsEmpty());
  EXPECT_THAT(engine.RunOne(request).status, IsOk());
}

TEST(EngineFailureTest, FailedDraftPassFailsItsRequest) {
  TestEngine engine(Usual());
  engine.draft().FailNext(absl::InternalError("draft device lost"));
  const auto results = engine.RunAll({With(Greedy({1, 2, 3}, 20), {DraftKind::kModel, 4}),
                                      With(Greedy({1, 2, 3}, 20), {DraftKind::kModel, 4})});
  EXPECT_THAT(results[0].choices[0].status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("draft device lost")));
  EXPECT_THAT(results[1].choices[0].status, IsOk());
  EXPECT_THAT(results[1].choices[0].tokens, SizeIs(20));
}

TEST(EngineCancelTest, CancelledPromptGivesAnEmptyInterruptedAnswer) {
  TestEngine engine(Usual());
  Observer observer;
  observer.cancelled = [] { return true; };
  auto request = With(Greedy({1, 2, 3}, 20), {DraftKind::kModel, 4});
  request.num_choices = 2;
  const GenerationResult result = engine.Run(request, observer);
  ASSERT_THAT(result.choices, SizeIs(2));
  for (const Choice& choice : result.choices) {
    EXPECT_THAT(choice.tokens, IsEmpty());
    EXPECT_EQ(choice.finish_reason, FinishReason::kInterrupted);
    EXPECT_THAT(choice.status, IsOk());
  }
}

TEST(EngineCancelTest, CancelBetweenRoundsKeepsTheTokensSoFar) {
  TestEngine engine(Usual());
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    const auto request = With(Sampled({1, 2, 3}, 50, 3), draft);
    const auto whole = engine.RunOne(request).tokens;
    size_t seen = 0;
    Observer observer;
    observer.on_token = [&](const EmittedToken&) { ++seen; };
    observer.cancelled = [&] { return seen >= 10; };
    const Choice choice = engine.RunOne(request, observer);
    EXPECT_EQ(choice.finish_reason, FinishReason::kInterrupted);
    EXPECT_THAT(choice.status, IsOk());
    EXPECT_EQ(choice.tokens.size(), seen);
    EXPECT_LT(choice.tokens.size(), 10u + 8u);
    EXPECT_TRUE(std::equal(choice.tokens.begin(), choice.tokens.end(), whole.begin()));
  }
}

TEST(EngineCancelTest, HeldBackTextIsDeliveredWhenInterrupted) {
  TestEngine engine({.target = SameRow({0, 9, 0, 0, 0, 0, 0, 0})});
  auto request = Plain(Greedy({0}, 50));
  request.stop = {"bbbbbbbbx"};
  std::string delivered;
  std::vector<int32_t> tokens;
  Observer observer;
  observer.on_token = [&](const EmittedToken& token) {
    delivered += token.text;
    tokens.push_back(token.token);
  };
  observer.cancelled = [&] { return tokens.size() >= 3; };
  const Choice choice = engine.RunOne(request, observer);
  EXPECT_EQ(choice.text, "bbb");
  EXPECT_EQ(delivered, "bbb");
  EXPECT_THAT(tokens, ElementsAre(1, 1, 1, -1));
}

TEST(EngineCancelTest, CancelEndsWaitingRequestsToo) {
  TestEngine engine(Usual(1));
  int32_t seen = 0;
  Observer observer;
  observer.on_token = [&](const EmittedToken&) { ++seen; };
  observer.cancelled = [&] { return seen >= 2; };
  const auto results = engine.RunAll(
      {Plain(Greedy({1, 2}, 20)), Plain(Greedy({3}, 20)), Plain(Greedy({4, 5}, 20))}, observer);
  EXPECT_THAT(results[0].choices[0].tokens, SizeIs(2));
  for (const GenerationResult& result : results) {
    EXPECT_EQ(result.choices[0].finish_reason, FinishReason::kInterrupted);
  }
  EXPECT_EQ(seen, 2);
}

}  // namespace
}  // namespace paceline
