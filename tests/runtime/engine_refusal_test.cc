// What is refused before any pass: the code, and the argument in the message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/support/engine_fixture.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using testing::Greedy;
using testing::HashedRows;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Sampled;
using testing::StatusIs;
using testing::TestEngine;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kOutOfRange = absl::StatusCode::kOutOfRange;

struct Refusal {
  const char* message;  // Occurs in the status: the argument and what came.
  std::function<void(GenerationRequest&)> spoil;
  absl::StatusCode code = kInvalid;
};

void ExpectRefused(const std::vector<Refusal>& refusals) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0), .context_length = 16, .end_ids = {7}});
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.message);
    GenerationRequest request = Sampled({1, 2}, 4, 1);
    EXPECT_THAT(engine.engine().Check(request), IsOk());
    refusal.spoil(request);
    EXPECT_THAT(engine.engine().Check(request), StatusIs(refusal.code, HasSubstr(refusal.message)));
    EXPECT_THAT(engine.engine().Generate(request),
                StatusIs(refusal.code, HasSubstr(refusal.message)));
    EXPECT_EQ(engine.target().num_passes(), 0);
    engine.ExpectNothingCached();
  }
}

TEST(EngineRefusalTest, RequestFields) {
  ExpectRefused({
      {"prompt: expected at least one token", [](auto& r) { r.prompt = {}; }},
      {"prompt: expected ids in [0, 8), got 8",
       [](auto& r) {
         r.prompt = {1, 8};
       }},
      {"prompt: expected ids in [0, 8), got -1", [](auto& r) { r.prompt = {-1}; }},
      {"prompt: expected fewer tokens than the context of 16, got 16",
       [](auto& r) { r.prompt.resize(16, 1); }, kOutOfRange},
      {"prompt: expected fewer tokens than the context of 16, got 17",
       [](auto& r) { r.prompt.resize(17, 1), r.max_tokens = 0; }, kOutOfRange},
      {"negative_prompt: expected none with guidance_scale 1",
       [](auto& r) { r.negative_prompt = {1}; }},
      {"negative_prompt: expected ids in [0, 8), got 9",
       [](auto& r) { r.sampling.guidance_scale = 2, r.negative_prompt = {9}; }},
      {"negative_prompt: expected fewer tokens than the context of 16, got 16",
       [](auto& r) { r.sampling.guidance_scale = 2, r.negative_prompt.resize(16, 1); }, kOutOfRange},
      {"max_tokens: expected 0 or more, got -1", [](auto& r) { r.max_tokens = -1; }},
      {"num_choices: expected 1 or more, got 0", [](auto& r) { r.num_choices = 0; }},
      {"best_of: expected 3 (num_choices) or more, or 0 (off), got 2",
       [](auto& r) { r.num_choices = 3, r.best_of = 2; }},
      {"stop: expected no empty text",
       [](auto& r) {
         r.stop = {"x", ""};
       }},
      {"stop_ids: expected ids in [0, 8), got 9", [](auto& r) { r.stop_ids = {9}; }},
      {"stop_ids: expected ids in [0, 8), got -2", [](auto& r) { r.stop_ids = {-2}; }},
      {"logprobs: expected a number in [0, 8], or -1 (off), got -2",
       [](auto& r) { r.num_logprobs = -2; }},
      {"logprobs", [](auto& r) { r.num_logprobs = 9; }},
  });
}

TEST(EngineRefusalTest, SamplingFields) {
  ExpectRefused({
      {"temperature", [](auto& r) { r.sampling.temperature = kNan; }},
      {"temperature", [](auto& r) { r.sampling.temperature = -1; }},
      {"temperature", [](auto& r) { r.sampling.temperature = kInf; }},
      {"top_k", [](auto& r) { r.sampling.top_k = -2; }},
      {"top_p", [](auto& r) { r.sampling.top_p = 1.5; }},
      {"top_p", [](auto& r) { r.sampling.top_p = kNan; }},
      {"min_p", [](auto& r) { r.sampling.min_p = 2; }},
      {"repetition_penalty", [](auto& r) { r.sampling.repetition_penalty = 0; }},
      {"frequency_penalty", [](auto& r) { r.sampling.frequency_penalty = kNan; }},
      {"presence_penalty", [](auto& r) { r.sampling.presence_penalty = kInf; }},
      {"penalty_last_n", [](auto& r) { r.sampling.penalty_last_n = -1; }},
      {"min_tokens", [](auto& r) { r.sampling.min_tokens = -1; }},
      {"min_keep", [](auto& r) { r.sampling.min_keep = 0; }},
      {"logit_bias",
       [](auto& r) {
         r.sampling.logit_bias = {{8, 1.0}};
       }},
      {"logit_bias",
       [](auto& r) {
         r.sampling.logit_bias = {{1, kInf}};
       }},
      {"allowed_ids", [](auto& r) { r.sampling.allowed_ids = {8}; }},
      {"bad_words", [](auto& r) { r.sampling.bad_words = {{}}; }},
  });
}

TEST(EngineRefusalTest, SpeculationFields) {
  ExpectRefused({
      {"draft_tokens: expected a number in [1, 64], got 0",
       [](auto& r) { r.speculation.num_draft_tokens = 0; }},
      {"draft_tokens: expected a number in [1, 64], got 65",
       [](auto& r) { r.speculation.num_draft_tokens = 65; }},
      {"draft_min: expected a number in [0, 4 (draft_tokens)], got -1",
       [](auto& r) { r.speculation.draft_min = -1; }},
      {"draft_min", [](auto& r) { r.speculation.draft_min = 5; }},
      {"got 'synthetic', which is not built yet",
       [](auto& r) { r.speculation.verify = "synthetic"; },
       absl::StatusCode::kUnimplemented},
      {"got 'medusa'", [](auto& r) { r.speculation.verify = "medusa"; }},
      {"draw: rule coupled expects gumbel",
       [](auto& r) {
         r.speculation.verify = "coupled";
         r.sampling.draw = DrawMethod::kInverseCdf;
       }},
      {"relaxed_top_n: expected a number in [1, ",
       [](auto& r) { r.speculation.rule.relaxed_top_n = 0; }},
      {"verify: rule greedy expects temperature 0",
       [](auto& r) { r.speculation.verify = "greedy"; }},
      {"ngram: expected 1 <= min_n <= max_n",
       [](auto& r) {
         r.speculation.ngram = {3, 0};
       }},
      {"ngram",
       [](auto& r) {
         r.speculation.ngram = {1, 2};
       }},
      {"exit_layers: expected a number in [1, 4), the target's layers, got 4",
       [](auto& r) { r.speculation.draft = DraftKind::kEarlyExit, r.speculation.exit_layers = 4; }},
      {"exit_layers: expected a number in [1, 4), the target's layers, got -1",
       [](auto& r) {
         r.speculation.draft = DraftKind::kEarlyExit, r.speculation.exit_layers = -1;
       }},
  });
}

TEST(EngineRefusalTest, DraftModelThatWasNotLoaded) {
  testing::TableModel target(8, 64, HashedRows(8, 1, 3.0));
  Engine engine({&target, nullptr, {8, {}, [](int32_t) { return "a"; }}}, {});
  auto request = Greedy({1}, 4);
  request.speculation.draft = DraftKind::kModel;
  EXPECT_THAT(engine.Generate(request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("draft"), HasSubstr("--draft-model"))));
  request.speculation.draft = DraftKind::kNgram;
  EXPECT_THAT(engine.Generate(request), IsOk());
}

TEST(EngineRefusalTest, DraftModelWithAHeadTooNarrow) {
  testing::TableModel target(8, 64, HashedRows(8, 1, 3.0));
  testing::TableModel draft(7, 64, HashedRows(7, 1, 3.0));
  Engine engine({&target, &draft, {8, {}, [](int32_t) { return "a"; }}}, {});
  auto request = Greedy({1}, 4);
  request.speculation.draft = DraftKind::kModel;
  EXPECT_THAT(engine.Generate(request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("draft model"), HasSubstr("got 7"))));
}

TEST(EngineRefusalTest, RefusedRequestLeavesTheOthersAlone) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0)});
  const auto good = Greedy({1, 2}, 6);
  const auto alone = engine.RunOne(good);
  const auto results =
      engine.engine().GenerateAll(std::vector<GenerationRequest>{Greedy({}, 4), good});
  EXPECT_THAT(results[0], StatusIs(kInvalid, HasSubstr("prompt")));
  ASSERT_THAT(results[1], IsOk());
  testing::ExpectSameAnswer(results[1]->choices[0], alone);
  engine.ExpectNothingCached();
}

TEST(EngineRefusalTest, KnownNamesAreFound) {
  for (const char* name : {"none", "ngram", "model", "early-exit"}) {
    const auto kind = FindDraftKind(name);
    ASSERT_THAT(kind, IsOk());
    EXPECT_EQ(DraftKindName(*kind), name);
  }
  EXPECT_THAT(FindDraftKind("medusa"), StatusIs(kInvalid, HasSubstr("medusa")));
}

TEST(EngineRefusalTest, BoundsThemselvesAreAccepted) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0), .context_length = 16});
  auto request = Greedy(std::vector<int32_t>(15, 1), 4);
  EXPECT_EQ(engine.RunOne(request).tokens.size(), 1u);
  request = Greedy({0, 7}, 4);
  request.stop_ids = {7};
  request.num_logprobs = 8;
  request.speculation.num_draft_tokens = 64;
  request.speculation.draft_min = 64;
  EXPECT_THAT(engine.engine().Check(request), IsOk());
  request.speculation.num_draft_tokens = 1;
  request.speculation.draft_min = 0;
  EXPECT_THAT(engine.engine().Check(request), IsOk());
}

}  // namespace
}  // namespace paceline
