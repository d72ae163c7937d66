// The promises on a real language model: greedy text is the same with every draft, draft = target
// accepts everything, expected and observed acceptance agree.
#include "tests/support/real_model.h"

#include <gtest/gtest.h>

#include <malloc.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/chat_template.h"
#include "models/load_model.h"
#include "models/slice.h"
#include "runtime/engine.h"
#include "runtime/engine_difference.h"
#include "tests/support/loaded_model.h"
#include "tests/support/prompts.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::LoadedModel;
using testing::OrThrow;
namespace fs = std::filesystem;

constexpr DraftKind kDrafts[] = {DraftKind::kNgram, DraftKind::kModel, DraftKind::kEarlyExit};

// The model, and a second one made of its first 20 layers. Loaded once for all tests of the
// process.
class RealModelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto path = testing::SmolLmPath();
    if (!path) return;
    const std::string sliced =
        (fs::temp_directory_path() / "paceline_first_20_layers.gguf").string();
    ASSERT_THAT(SliceModel(*path, sliced, 20), testing::IsOk());
    target_ = std::make_unique<LoadedModel>(*path, ModelOptions{.context_length = 2048});
    draft_ = std::make_unique<LoadedModel>(sliced, ModelOptions{.context_length = 2048});
    fs::remove(sliced);
  }

  static void TearDownTestSuite() {
    target_.reset();
    draft_.reset();
  }

  void SetUp() override {
    if (target_ == nullptr) GTEST_SKIP() << "SKIPPED: the SmolLM2 model file is not installed";
  }

  static GenerationRequest RequestFor(const std::string& prompt) {
    const ChatTemplate chat = OrThrow(ChatTemplate::Recognise(target_->weights->tokenizer()));
    GenerationRequest request;
    request.prompt = OrThrow(chat.Render(*target_->tokenizer, {{"user", prompt}}));
    request.max_tokens = 128;
    request.seed = 7;
    return request;
  }

  static Choice Run(GenerationRequest request, LanguageModel* draft = draft_->model.get()) {
    Engine engine(target_->ForEngine(draft), {});
    GenerationResult result = OrThrow(engine.Generate(request));
    EXPECT_THAT(result.choices[0].status, testing::IsOk());
    return std::move(result.choices[0]);
  }

  static void ExpectSameGreedyText(const std::vector<std::string>& prompts) {
    std::map<DraftKind, int64_t> num_accepted;
    for (const std::string& prompt : prompts) {
      GenerationRequest request = RequestFor(prompt);
      request.sampling.temperature = 0;
      request.speculation.draft = DraftKind::kNone;
      const Choice plain = Run(request);
      for (DraftKind draft : kDrafts) {
        request.speculation.draft = draft;
        const Choice drafted = Run(request);
        EXPECT_EQ(drafted.tokens, plain.tokens) << DraftKindName(draft) << ": " << prompt;
        EXPECT_EQ(drafted.text, plain.text);
        EXPECT_EQ(drafted.finish_reason, plain.finish_reason);
        num_accepted[draft] += drafted.telemetry.num_accepted_tokens;
      }
    }
    for (DraftKind draft : kDrafts) EXPECT_GT(num_accepted[draft], 0) << DraftKindName(draft);
    if (HasFailure()) return;
    std::printf("[greedy] %zu prompts x 3 drafts: all identical\n", prompts.size());
  }

  static inline std::unique_ptr<LoadedModel> target_;
  static inline std::unique_ptr<LoadedModel> draft_;
};

TEST_F(RealModelTest, GreedyTextIsTheSameWithEveryDraft) {
  ExpectSameGreedyText(testing::DemoPrompts(5));
}

TEST_F(RealModelTest, DraftEqualToTheTargetIsAlwaysAccepted) {
  GenerationRequest request = RequestFor(testing::DemoPrompts(5)[4]);
  request.speculation.draft = DraftKind::kModel;
  const Choice choice = Run(request, target_->model.get());
  EXPECT_EQ(choice.telemetry.AcceptanceRate(), 1.0);
  EXPECT_NEAR(*choice.telemetry.expected_acceptance.Value(), 1.0, 1e-4);
}

TEST_F(RealModelTest, ExpectedAcceptanceOfAWorseDraftIsWhatIsObserved) {
  GenerationRequest request = RequestFor(testing::DemoPrompts(5)[4]);
  request.speculation.draft = DraftKind::kModel;
  request.max_tokens = 128;
  request.ignore_eos = true;
  const Telemetry telemetry = Run(request).telemetry;
  const Interval observed = telemetry.JudgedAcceptanceInterval();
  const double expected = *telemetry.expected_acceptance.Value();
  std::printf("[acceptance] first 20 layers: expected %.3f, observed %.3f [%.3f, %.3f]\n", expected,
              *telemetry.JudgedAcceptance(), observed.low, observed.high);
  EXPECT_LT(*telemetry.AcceptanceRate(), 1.0);
  EXPECT_GE(expected, observed.low);
  EXPECT_LE(expected, observed.high);
}

// llama.cpp shows 3.4e-3 on 2,000 positions of the same model; see README.
TEST_F(RealModelTest, FastEngineIsNearTheReference) {
  const auto weights = OrThrow(OpenModel(*testing::SmolLmPath()));
  const auto reference =
      OrThrow(LoadModel(*weights, {.engine = "reference", .context_length = 512}));
  EngineDifference difference;
  for (const std::string& prompt : testing::DemoPrompts(5)) {
    const auto ids =
        OrThrow(target_->tokenizer->Encode(prompt, Tokenizer::Specials::kPlainText));
    ASSERT_THAT(AddDifference(*reference, *target_->model, target_->tokenizer->vocab_size(), ids,
                              difference),
                testing::IsOk());
  }
  std::printf("[kl] %ld positions: mean %.2e nats, same likeliest token %.1f %%\n",
              static_cast<long>(difference.num_positions), difference.MeanKl(),
              100 * difference.Agreement());
  EXPECT_LE(difference.MeanKl(), 1.2 * 3.4e-3);
  EXPECT_GE(difference.Agreement(), 0.93);
}

int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// Packed weights, cache and at most 32 MB, also after a long prompt.
TEST_F(RealModelTest, MemoryIsThatOfWeightsAndCache) {
  const auto weights = OrThrow(OpenModel(*testing::SmolLmPath()));
  malloc_trim(0);  // What other tests have left free would be used again, and not be seen.
  const int64_t before = AnonymousBytes();
  const auto model = OrThrow(LoadModel(*weights, {.engine = "fast", .context_length = 1024}));
  constexpr int32_t kPositions = 1000;
  const std::vector<int32_t> tokens(kPositions, 100);
  const SequenceId sequence = model->cache().Create();
  ASSERT_THAT(model->Forward({{{sequence, tokens, {}, RowWish::kLast}}}).status(), testing::IsOk());
  const int64_t grown = AnonymousBytes() - before;
  const ModelConfig& config = weights->config();
  // The cache grows by doubling; keys and values are halves.
  const int64_t cache = int64_t{2} * kPositions * config.num_layers * 2 * config.num_kv_heads *
                        config.head_dim * 2;
  std::printf("[memory] %.1f MB: weights %.1f, cache at most %.1f\n", grown / 1e6,
              model->work().weight_bytes / 1e6, cache / 1e6);
  EXPECT_LE(grown, model->work().weight_bytes + cache + (32 << 20));
}

// Twenty Spec-Bench prompts: minutes. `test.sh --all` asks for it.
TEST_F(RealModelTest, DISABLED_GreedyTextIsTheSameOnSpecBench) {
  const auto prompts = testing::SpecBenchPrompts(20);
  if (!prompts) GTEST_SKIP() << "SKIPPED: PACELINE_SPEC_BENCH names no file of prompts";
  ExpectSameGreedyText(*prompts);
}

}  // namespace
}  // namespace paceline
