// Guidance through the engine: two streams, one draft, rows combined before every other stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/support/chi_square.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/monte_carlo.h"

namespace paceline {
namespace {

using ::testing::ElementsAreArray;
using testing::ExpectSameForEveryDraft;
using testing::Greedy;
using testing::HashedRows;
using testing::Plain;
using testing::Sampled;
using ::testing::SizeIs;
using testing::TestEngine;
using Tokens = std::vector<int32_t>;

constexpr int32_t kVocab = 8;
constexpr double kScale = 1.7;

std::vector<double> LogSoftmax(const std::vector<float>& logits) {
  double mass = 0;
  for (const float logit : logits) mass += std::exp(static_cast<double>(logit));
  std::vector<double> row;
  for (const float logit : logits) row.push_back(logit - std::log(mass));
  return row;
}

// log p_u + scale (log p_c - log p_u) behind the two prompts, from the definition (Sanchez et al.
// 2023).
std::vector<double> GuidedRow(const testing::TableModel::RowFunction& rows, Tokens prompt,
                              Tokens negative, const Tokens& output) {
  prompt.insert(prompt.end(), output.begin(), output.end());
  negative.insert(negative.end(), output.begin(), output.end());
  const std::vector<double> conditional = LogSoftmax(rows(prompt));
  const std::vector<double> unconditional = LogSoftmax(rows(negative));
  std::vector<double> row;
  for (int32_t id = 0; id < kVocab; ++id) {
    row.push_back(unconditional[id] + kScale * (conditional[id] - unconditional[id]));
  }
  return row;
}

GenerationRequest Guided(GenerationRequest request, Tokens negative) {
  request.sampling.guidance_scale = kScale;
  request.negative_prompt = std::move(negative);
  return request;
}

TEST(EngineGuidanceTest, GreedyTextIsThatOfTheCombinedRowsWhateverIsDrafted) {
  const auto rows = HashedRows(kVocab, 5, 4.0);
  TestEngine engine({.target = rows, .draft = HashedRows(kVocab, 6, 4.0)});
  for (const Tokens& negative : {Tokens{3}, Tokens{4, 4, 1, 0}, Tokens{}}) {
    const Tokens prompt = {1, 2};
    Tokens expected;
    for (int i = 0; i < 20; ++i) {
      // Without a negative prompt the unconditional stream begins with the prompt's last token.
      const auto row = GuidedRow(rows, prompt, negative.empty() ? Tokens{2} : negative, expected);
      expected.push_back(
          static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    const Choice choice = ExpectSameForEveryDraft(engine, Guided(Greedy(prompt, 20), negative));
    EXPECT_THAT(choice.tokens, ElementsAreArray(expected));
    EXPECT_NE(engine.RunOne(Plain(Greedy(prompt, 20))).tokens, expected);
  }
}

// Penalties, filters and a rule that draws for itself: one seed, one text.
TEST(EngineGuidanceTest, DrawnTextIsTheSameUnderMatchWhateverIsDrafted) {
  TestEngine engine({.target = HashedRows(kVocab, 7, 3.0), .draft = HashedRows(kVocab, 8, 3.0)});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GenerationRequest request = Guided(Sampled({1, 2, 3}, 16, seed), {5, 0});
    request.speculation.verify = "match";
    request.sampling.top_k = 5;
    request.sampling.repetition_penalty = 1.3;
    ExpectSameForEveryDraft(engine, request);
  }
}

TEST(EngineGuidanceTest, StandardFollowsTheLawOfTheCombinedRows) {
  const auto rows = HashedRows(kVocab, 9, 2.0);
  TestEngine engine({.target = rows, .draft = HashedRows(kVocab, 10, 2.0), .max_batch = 64});
  std::map<Tokens, double> law;
  const auto probs_of = [&](const Tokens& output) {
    std::vector<double> row = GuidedRow(rows, {1, 2}, {6, 3}, output);
    double mass = 0;
    for (double& value : row) mass += value = std::exp(value);
    for (double& value : row) value /= mass;
    return row;
  };
  const auto first = probs_of({});
  for (int32_t a = 0; a < kVocab; ++a) {
    const auto second = probs_of({a});
    for (int32_t b = 0; b < kVocab; ++b) law[{a, b}] = first[a] * second[b];
  }
  for (const char* rule : {"standard", "block", "coupled"}) {
    GenerationRequest request = Guided(Sampled({1, 2}, 2, 11), {6, 3});
    request.speculation.draft = DraftKind::kModel;
    request.speculation.verify = rule;
    request.num_choices = testing::NumStreams(20000);
    std::map<Tokens, int64_t> counts;
    for (const Choice& choice : engine.Run(request).choices) ++counts[choice.tokens];
    // One fixed experiment; a right rule fails it with probability 1e-4.
    EXPECT_GE(testing::ChiSquareTest(counts, law).p_value, 1e-4) << rule;
  }
}

// The longer of the two prompts decides where the context ends.
TEST(EngineGuidanceTest, TheContextEndsWhereTheFirstStreamIsFull) {
  TestEngine engine({.target = HashedRows(kVocab, 12, 3.0), .context_length = 16});
  EXPECT_THAT(ExpectSameForEveryDraft(engine, Guided(Greedy({1}, 40), Tokens(9, 2))).tokens,
              SizeIs(7));
  EXPECT_THAT(ExpectSameForEveryDraft(engine, Guided(Greedy(Tokens(9, 2), 40), {1})).tokens,
              SizeIs(7));
}

TEST(EngineGuidanceTest, ChoicesAndNeighboursDoNotDisturbIt) {
  TestEngine engine({.target = HashedRows(kVocab, 13, 3.0)});
  GenerationRequest guided = Guided(Sampled({1, 2}, 10, 3), {4, 4});
  guided.num_choices = 3;
  const GenerationRequest other = Sampled({5}, 10, 4);
  const auto together = engine.RunAll({other, guided, other});
  const GenerationResult alone = engine.Run(guided);
  for (size_t i = 0; i < alone.choices.size(); ++i) {
    EXPECT_EQ(together[1].choices[i].tokens, alone.choices[i].tokens);
  }
  EXPECT_EQ(together[0].choices[0].tokens, engine.RunOne(other).tokens);
}

TEST(EngineGuidanceTest, AStopWhileReadingEitherPromptLeavesNothingBehind) {
  TestEngine engine({.target = HashedRows(kVocab, 14, 3.0)});
  for (int stop_at = 1; stop_at <= 3; ++stop_at) {
    int calls = 0;
    Observer observer;
    observer.cancelled = [&] { return ++calls >= stop_at; };
    const Choice choice = engine.RunOne(Guided(Greedy({1, 2}, 5), {3, 3}), observer);
    EXPECT_EQ(choice.finish_reason, FinishReason::kInterrupted);
  }
}

}  // namespace
}  // namespace paceline
