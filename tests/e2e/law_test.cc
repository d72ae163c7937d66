// The law of the emitted tokens, through the real loop on a real (tiny) checkpoint.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "models/slice.h"
#include "runtime/engine.h"
#include "sampling/pipeline.h"
#include "target/target.h"
#include "tests/support/chi_square.h"
#include "tests/support/loaded_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using testing::DataPath;
using testing::LoadedModel;
using testing::OrThrow;

constexpr int kTokens = 3;  // The law of the first three tokens, 4^3 = 64 cells at top-k 4.
constexpr uint32_t kSequences = 50'000;
constexpr int kThreads = 2;
constexpr double kLeastPValue = 1e-4;

using Tokens = std::array<int32_t, kTokens>;
using Counts = std::map<Tokens, int64_t>;

std::string TinyModel() { return DataPath("llama/model-f32.gguf"); }

SamplingOptions TopK4() {
  SamplingOptions sampling;
  sampling.top_k = 4;
  return sampling;
}

GenerationRequest RequestFor(int32_t num_draft_tokens, uint64_t seed, uint32_t num_choices) {
  GenerationRequest request;
  request.prompt = {40, 97, 110, 33};
  request.sampling = TopK4();
  request.seed = seed;
  request.num_choices = num_choices;
  request.ignore_eos = true;
  request.speculation.draft = num_draft_tokens > 0 ? DraftKind::kModel : DraftKind::kNone;
  request.speculation.num_draft_tokens = std::max(num_draft_tokens, 1);
  request.max_tokens = num_draft_tokens + kTokens;
  return request;
}

// Distribution of the token after `tokens`, from the model's own logits in double.
Distribution<double> RowAfter(LanguageModel& model, const std::vector<int32_t>& tokens) {
  const SequenceId sequence = model.cache().Create();
  ForwardBatch batch;
  batch.segments.push_back({sequence, tokens, {}, RowWish::kLast});
  const ForwardOutput output = OrThrow(model.Forward(batch));
  EXPECT_THAT(model.cache().Release(sequence), testing::IsOk());
  auto pipeline = OrThrow(Pipeline<double>::Create(TopK4(), static_cast<int32_t>(output.width)));
  return OrThrow(pipeline.Apply(output.Row(0), RowContext{}));
}

// The exact law of the first kTokens tokens after `prompt`, by enumeration.
void Enumerate(LanguageModel& model, std::vector<int32_t>& tokens, size_t prompt_length,
               double probability, std::map<Tokens, double>& law) {
  if (tokens.size() == prompt_length + kTokens) {
    Tokens outcome;
    std::copy(tokens.end() - kTokens, tokens.end(), outcome.begin());
    law[outcome] += probability;
    return;
  }
  const Distribution<double> row = RowAfter(model, tokens);
  for (size_t i = 0; i < row.probs().size(); ++i) {
    tokens.push_back(row.IdAt(i));
    Enumerate(model, tokens, prompt_length, probability * row.probs()[i], law);
    tokens.pop_back();
  }
}

struct Sample {
  Counts counts;
  Telemetry telemetry;
};

// Generates one thread's share of the sequences with models of its own.
Sample Generate(const std::string& draft_path, int32_t num_draft_tokens, uint64_t seed) {
  ReferenceOptions options;
  options.num_threads = 1;
  const LoadedModel target(TinyModel(), options);
  const LoadedModel draft(draft_path, options);
  Engine engine(target.ForEngine(draft.model.get()), {});
  const GenerationResult result =
      OrThrow(engine.Generate(RequestFor(num_draft_tokens, seed, kSequences / kThreads)));
  Sample sample;
  for (const Choice& choice : result.choices) {
    EXPECT_THAT(choice.status, testing::IsOk());
    Tokens first;
    std::copy_n(choice.tokens.begin(), kTokens, first.begin());
    ++sample.counts[first];
    sample.telemetry.Merge(choice.telemetry);
  }
  return sample;
}

class LawTest : public ::testing::TestWithParam<int> {};

TEST_P(LawTest, FirstThreeTokensFollowTheTargetExactly) {
  const int num_draft_tokens = GetParam();
  const std::string draft_path =
      (std::filesystem::temp_directory_path() /
       ("paceline_law_draft_" + std::to_string(num_draft_tokens) + ".gguf"))
          .string();
  ASSERT_THAT(SliceModel(TinyModel(), draft_path, 1), testing::IsOk());

  std::array<Sample, kThreads> samples;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      samples[i] = Generate(draft_path, num_draft_tokens, 1000 + 10 * num_draft_tokens + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::filesystem::remove(draft_path);
  for (int i = 1; i < kThreads; ++i) {
    for (const auto& [outcome, count] : samples[i].counts) samples[0].counts[outcome] += count;
    samples[0].telemetry.Merge(samples[i].telemetry);
  }

  const LoadedModel target(TinyModel());
  std::vector<int32_t> tokens = RequestFor(0, 0, 1).prompt;
  std::map<Tokens, double> law;
  Enumerate(*target.model, tokens, tokens.size(), 1.0, law);
  ASSERT_EQ(law.size(), 64u);

  const testing::ChiSquare fit = testing::ChiSquareTest(samples[0].counts, law);
  std::printf("[law] K %d: %u sequences, acceptance %.3f, chi-square %.1f at %ld degrees, p %.4f\n",
              num_draft_tokens, kSequences, samples[0].telemetry.AcceptanceRate().value_or(0),
              fit.statistic, static_cast<long>(fit.degrees), fit.p_value);
  EXPECT_GE(fit.p_value, kLeastPValue);
  if (num_draft_tokens > 0) {
    // A draft that is nearly right or always wrong would test little.
    EXPECT_GT(*samples[0].telemetry.AcceptanceRate(), 0.02);
    EXPECT_LT(*samples[0].telemetry.AcceptanceRate(), 0.9);
  }
}

INSTANTIATE_TEST_SUITE_P(DraftTokens, LawTest, ::testing::Values(0, 1, 2, 3, 4));

}  // namespace
}  // namespace paceline
