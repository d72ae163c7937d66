// The law of the emitted tokens, through the real loop on a real (tiny) checkpoint.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "draft/model_drafter.h"
#include "models/slice.h"
#include "runtime/engine.h"
#include "runtime/round.h"
#include "runtime/sequence.h"
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
constexpr int kThreads = 2;
constexpr double kLeastPValue = 1e-4;

constexpr uint32_t kSequences = 50'000;

using Tokens = std::array<int32_t, kTokens>;
using Counts = std::map<Tokens, int64_t>;

std::string TinyModel() { return DataPath("models/llama/model-f32.gguf"); }

SamplingOptions TopK4() {
  SamplingOptions sampling;
  sampling.top_k = 4;
  return sampling;
}

GenerationRequest RequestFor(int32_t num_draft_tokens) {
  GenerationRequest request;
  request.prompt = {40, 97, 110, 33};
  request.sampling = TopK4();
  request.ignore_eos = true;
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
  auto pipeline = OrThrow(Pipeline<double>::Create(TopK4(), static_cast<int32_t>(output.width())));
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

// Runs the rounds of one stream until its first kTokens tokens are committed.
void Generate(Target& target, SequenceId prompt, Sequence::Parts parts, Sample& sample) {
  const size_t prompt_length = parts.request->prompt.size();
  const SequenceId cache = OrThrow(target.model().cache().Fork(prompt));
  Sequence sequence(std::move(parts), {cache});
  Sequence* const batch[] = {&sequence};
  while (sequence.live() && sequence.committed().size() < prompt_length + kTokens)
    RunRound(batch, target);
  Tokens first;
  std::copy_n(sequence.committed().begin() + prompt_length, kTokens, first.begin());
  ++sample.counts[first];
  const Choice choice = sequence.TakeChoice();
  EXPECT_THAT(choice.status, testing::IsOk());
  sample.telemetry.Merge(choice.telemetry);
  EXPECT_THAT(target.model().cache().Release(cache), testing::IsOk());
}

// One thread's share of the sequences, with models of its own.
Sample GenerateShare(const std::string& draft_path, int32_t num_draft_tokens, uint64_t seed) {
  const ModelOptions options{.num_threads = 1};
  const LoadedModel target_model(TinyModel(), options);
  const LoadedModel draft_model(draft_path, options);
  const Vocabulary vocabulary = VocabularyOf(*target_model.tokenizer);
  const GenerationRequest request = RequestFor(num_draft_tokens);
  const auto pipeline = OrThrow(Pipeline<float>::Create(request.sampling, vocabulary.size));
  const Observer observer;
  Target target(target_model.model.get());
  const SequenceId prompt = OrThrow(target.Start(request.prompt));
  Sample sample;
  for (uint32_t stream = 0; stream < kSequences / kThreads; ++stream) {
    std::unique_ptr<Drafter> drafter;
    if (num_draft_tokens > 0) {
      drafter =
          std::make_unique<ModelDrafter>(draft_model.model.get(), pipeline, std::vector<int32_t>());
    }
    Generate(target, prompt,
             {&request, &vocabulary, &observer, OrThrow(FindRule("standard")), pipeline,
              std::move(drafter), StreamKey{seed, stream}, 0, target_model.model->context_length()},
             sample);
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
      samples[i] = GenerateShare(draft_path, num_draft_tokens, 1000 + 10 * num_draft_tokens + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::filesystem::remove(draft_path);
  for (int i = 1; i < kThreads; ++i) {
    for (const auto& [outcome, count] : samples[i].counts) samples[0].counts[outcome] += count;
    samples[0].telemetry.Merge(samples[i].telemetry);
  }

  const LoadedModel target(TinyModel());
  std::vector<int32_t> tokens = RequestFor(0).prompt;
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
