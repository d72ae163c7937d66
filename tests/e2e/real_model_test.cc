// The promises on a real language model: greedy text is the same with every draft, draft = target
// accepts everything, expected and observed acceptance agree.
#include "tests/support/real_model.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/chat_template.h"
#include "models/slice.h"
#include "runtime/engine.h"
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
        EXPECT_GT(drafted.telemetry.num_accepted_tokens, 0) << DraftKindName(draft);
      }
    }
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

// Twenty Spec-Bench prompts: minutes. `test.sh --all` asks for it.
TEST_F(RealModelTest, DISABLED_GreedyTextIsTheSameOnSpecBench) {
  const auto prompts = testing::SpecBenchPrompts(20);
  if (!prompts) GTEST_SKIP() << "SKIPPED: PACELINE_SPEC_BENCH names no file of prompts";
  ExpectSameGreedyText(*prompts);
}

}  // namespace
}  // namespace paceline
