// What tests of the engine share: an engine over table models, the grid of draft sources, and
// sequences run by a drafter that no option can ask for.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "runtime/round.h"
#include "runtime/sequence.h"
#include "tests/support/status_matchers.h"
#include "tests/support/table_model.h"
#include "verify/rules.h"

namespace paceline::testing {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Logits of probabilities: their logarithms.
inline std::vector<float> LogitsOf(const std::vector<double>& probs) {
  std::vector<float> logits;
  for (double prob : probs) logits.push_back(static_cast<float>(std::log(prob)));
  return logits;
}

// The same row after every history.
inline TableModel::RowFunction SameRow(std::vector<float> row) {
  return [=](std::span<const int32_t>) { return row; };
}

// Gives `script[i]` a logit of 10 at output position i (counted behind `prompt_length` tokens),
// token 0 behind the end of the script; all others 0.
inline TableModel::RowFunction Script(int32_t vocab_size, int32_t prompt_length,
                                      std::vector<int32_t> script) {
  return [=](std::span<const int32_t> history) {
    const size_t place = history.size() - prompt_length;
    std::vector<float> row(vocab_size, 0);
    row[place < script.size() ? script[place] : 0] = 10;
    return row;
  };
}

struct DraftCase {
  DraftKind kind;
  int32_t num_draft_tokens;
};

inline std::string Name(const DraftCase& draft) {
  return absl::StrCat("draft ", std::string(DraftKindName(draft.kind)), ", K ",
                      draft.num_draft_tokens);
}

// Every draft source with K in {1, 2, 4, 7}.
inline std::vector<DraftCase> DraftCases() {
  std::vector<DraftCase> cases;
  for (DraftKind kind : {DraftKind::kNgram, DraftKind::kModel, DraftKind::kEarlyExit}) {
    for (int32_t num_draft_tokens : {1, 2, 4, 7}) cases.push_back({kind, num_draft_tokens});
  }
  return cases;
}

inline GenerationRequest With(GenerationRequest request, const DraftCase& draft) {
  request.speculation.draft = draft.kind;
  request.speculation.num_draft_tokens = draft.num_draft_tokens;
  return request;
}

inline GenerationRequest Plain(GenerationRequest request) {
  request.speculation.draft = DraftKind::kNone;
  return request;
}

inline GenerationRequest Greedy(std::vector<int32_t> prompt, int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.seed = 1;
  return request;
}

inline GenerationRequest Sampled(std::vector<int32_t> prompt, int32_t max_tokens, uint64_t seed) {
  GenerationRequest request = Greedy(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.seed = seed;
  return request;
}

struct EngineSetup {
  TableModel::RowFunction target;
  TableModel::RowFunction draft = nullptr;  // Null: as the target.
  TableModel::RowFunction early = nullptr;  // Null: as the target.
  int32_t vocab_size = 8;
  int32_t width = 0;  // Of the logit rows; 0: vocab_size.
  int32_t context_length = 64;
  int32_t draft_context_length = 64;
  std::vector<int32_t> end_ids = {};
  std::vector<std::string> pieces = {};  // Empty: 'a', 'b', ...; end ids have none.
  int32_t max_batch = 8;
};

// An engine with its models. Every run checks that no page of a cache is left behind and that the
// counters agree with the tokens.
class TestEngine {
 public:
  explicit TestEngine(EngineSetup setup)
      : setup_(std::move(setup)),
        target_(Width(), setup_.context_length, setup_.target),
        draft_(Width(), setup_.draft_context_length, setup_.draft ? setup_.draft : setup_.target),
        engine_({&target_, &draft_, MakeVocabulary()}, {7, setup_.max_batch}) {
    if (setup_.early) target_.set_early_row(setup_.early);
  }

  Engine& engine() { return engine_; }
  TableModel& target() { return target_; }
  TableModel& draft() { return draft_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

  GenerationResult Run(const GenerationRequest& request, const Observer& observer = {}) {
    return RunAll({request}, observer).front();
  }

  // The result's only choice.
  Choice RunOne(const GenerationRequest& request, const Observer& observer = {}) {
    return Run(request, observer).choices.front();
  }

  std::vector<GenerationResult> RunAll(const std::vector<GenerationRequest>& requests,
                                       const Observer& observer = {}) {
    std::vector<GenerationResult> results;
    for (auto& result : engine_.GenerateAll(requests, observer)) {
      EXPECT_THAT(result, IsOk());
      results.push_back(result.ok() ? *std::move(result)
                                    : GenerationResult{std::vector<Choice>(1), 0, 0, 0, "", true});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      for (const Choice& choice : results[i].choices) CheckCounts(requests[i], choice);
    }
    ExpectNothingCached();
    return results;
  }

  void ExpectNothingCached() {
    EXPECT_EQ(target_.cache().pages_in_use(), 0);
    EXPECT_EQ(draft_.cache().pages_in_use(), 0);
  }

 private:
  int32_t Width() const { return setup_.width > 0 ? setup_.width : setup_.vocab_size; }

  Vocabulary MakeVocabulary() {
    for (int32_t id = 0; setup_.pieces.empty() && id < setup_.vocab_size; ++id) {
      const bool ends = std::count(setup_.end_ids.begin(), setup_.end_ids.end(), id) > 0;
      letters_.push_back(ends ? "" : std::string(1, static_cast<char>('a' + id % 26)));
    }
    if (!setup_.pieces.empty()) letters_ = setup_.pieces;
    vocabulary_ = {setup_.vocab_size, setup_.end_ids,
                   [this](int32_t id) -> std::string_view { return letters_[id]; }};
    return vocabulary_;
  }

  static void CheckCounts(const GenerationRequest& request, const Choice& choice) {
    const auto num_tokens = static_cast<int64_t>(choice.tokens.size());
    const Telemetry& telemetry = choice.telemetry;
    EXPECT_LE(num_tokens, request.max_tokens);
    EXPECT_EQ(telemetry.num_emitted_tokens, num_tokens);
    EXPECT_LE(telemetry.num_accepted_tokens, telemetry.num_draft_tokens);
    EXPECT_LE(telemetry.num_drafts, telemetry.num_rounds);
    if (request.speculation.draft == DraftKind::kNone) {
      EXPECT_EQ(telemetry.num_drafts, 0);
    }
    const int64_t num_logprobs = request.num_logprobs < 0 ? 0 : num_tokens;
    EXPECT_EQ(static_cast<int64_t>(choice.raw_logprobs.size()), num_logprobs);
    EXPECT_EQ(static_cast<int64_t>(choice.processed_logprobs.size()), num_logprobs);
  }

  EngineSetup setup_;
  std::vector<std::string> letters_;
  Vocabulary vocabulary_;
  TableModel target_;
  TableModel draft_;
  Engine engine_;
};

inline void ExpectSameLogProbs(const std::vector<LogProbs>& got,
                               const std::vector<LogProbs>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("token ", i));
    EXPECT_EQ(got[i].emitted.token, want[i].emitted.token);
    EXPECT_EQ(got[i].emitted.log_prob, want[i].emitted.log_prob);
    ASSERT_EQ(got[i].top.size(), want[i].top.size());
    for (size_t j = 0; j < got[i].top.size(); ++j) {
      EXPECT_EQ(got[i].top[j].token, want[i].top[j].token);
      EXPECT_EQ(got[i].top[j].log_prob, want[i].top[j].log_prob);
    }
  }
}

// Everything that the user sees of a choice.
inline void ExpectSameAnswer(const Choice& got, const Choice& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(FinishReasonName(got.finish_reason), FinishReasonName(want.finish_reason));
  EXPECT_EQ(got.status, want.status);
  ExpectSameLogProbs(got.raw_logprobs, want.raw_logprobs);
  ExpectSameLogProbs(got.processed_logprobs, want.processed_logprobs);
}

// Runs `request` without drafting, then with every source and K: each must give the plain answer,
// which is returned.
inline Choice ExpectSameForEveryDraft(TestEngine& engine, const GenerationRequest& request) {
  Choice plain = engine.RunOne(Plain(request));
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    ExpectSameAnswer(engine.RunOne(With(request, draft)), plain);
  }
  return plain;
}

// A drafter made of a function of its request.
class FunctionDrafter : public Drafter {
 public:
  using Function = std::function<absl::StatusOr<Proposal<float>>(const DraftRequest&)>;

  explicit FunctionDrafter(Function propose) : propose_(std::move(propose)) {}
  std::string_view name() const override { return "function"; }
  absl::StatusOr<Proposal<float>> Propose(const DraftRequest& request) override {
    return propose_(request);
  }
  absl::Status Commit(std::span<const int32_t>) override { return absl::OkStatus(); }

 private:
  Function propose_;
};

// Picks `tokens`, cut to what the round allows, in every round.
inline std::unique_ptr<Drafter> AlwaysPicks(std::vector<int32_t> tokens) {
  return std::make_unique<FunctionDrafter>([=](const DraftRequest& request) {
    const size_t count = std::min<size_t>(tokens.size(), request.max_tokens);
    return Proposal<float>::Deterministic(
        TokenTree::Chain(std::span<const int32_t>(tokens).first(count)));
  });
}

// Runs `request` by rounds with a drafter that no option names. Checks after each round that the
// target's cache holds every committed token but the last, and in the end that nothing is left.
inline Choice RunRounds(TableModel& model, const Vocabulary& vocabulary,
                        const GenerationRequest& request, std::unique_ptr<Drafter> drafter,
                        const Observer& observer = {}, uint32_t stream = 0) {
  Target target(&model);
  SamplingOptions sampling = request.sampling;
  if (!request.ignore_eos) sampling.eos_ids = vocabulary.end_ids;
  const Rule* rule = *FindRule(sampling.temperature == 0 ? "greedy" : request.speculation.verify);
  std::vector<SequenceId> caches;
  for (const auto prompt : PromptsOf(request)) caches.push_back(*target.Start(prompt));
  Choice choice;
  {
    Sequence sequence({&request, &vocabulary, &observer, rule,
                       *Pipeline<float>::Create(sampling, vocabulary.size), std::move(drafter),
                       StreamKey{request.seed.value_or(0), stream}, 0, model.context_length()},
                      caches);
    Sequence* const batch[] = {&sequence};
    while (sequence.live()) {
      RunRound(batch, target);
      if (!sequence.live()) choice = sequence.TakeChoice();
      if (!choice.status.ok()) break;
      EXPECT_EQ(model.cache().Length(caches.front()), static_cast<int32_t>(sequence.committed().size()) - 1);
    }
  }
  for (const SequenceId cache : caches) EXPECT_THAT(model.cache().Release(cache), IsOk());
  EXPECT_EQ(model.cache().pages_in_use(), 0);
  return choice;
}

}  // namespace paceline::testing
