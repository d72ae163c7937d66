#include "runtime/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "draft/early_exit.h"
#include "draft/model_drafter.h"
#include "draft/ngram.h"
#include "runtime/matrix.h"
#include "runtime/round.h"
#include "runtime/sequence.h"
#include "sampling/guidance.h"

namespace paceline {
namespace {

absl::Status Refuse(absl::string_view argument, absl::string_view expected, int64_t got) {
  return absl::InvalidArgumentError(absl::StrCat(argument, ": expected ", expected, ", got ", got));
}

absl::Status CheckIds(std::span<const int32_t> ids, absl::string_view argument, int32_t size) {
  for (int32_t id : ids) {
    if (id >= 0 && id < size) continue;
    return Refuse(argument, absl::StrCat("ids in [0, ", size, ")"), id);
  }
  return absl::OkStatus();
}

absl::Status CheckPrompt(std::span<const int32_t> prompt, absl::string_view argument,
                         int32_t max_tokens, int32_t vocab_size, int32_t context_length) {
  PACELINE_RETURN_IF_ERROR(CheckIds(prompt, argument, vocab_size));
  const auto length = static_cast<int64_t>(prompt.size());
  if (length < context_length || (max_tokens == 0 && length == context_length)) {
    return absl::OkStatus();
  }
  return absl::OutOfRangeError(absl::StrCat(argument, ": expected fewer tokens than the context of ",
                                            context_length, ", got ", length));
}

absl::Status CheckPrompts(const GenerationRequest& request, int32_t vocab_size,
                          int32_t context_length) {
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: expected at least one token, got none");
  }
  if (!request.negative_prompt.empty() && !GuidanceActive(request.sampling)) {
    return absl::InvalidArgumentError(
        "negative_prompt: expected none with guidance_scale 1 (off), which alone would read it");
  }
  PACELINE_RETURN_IF_ERROR(
      CheckPrompt(request.prompt, "prompt", request.max_tokens, vocab_size, context_length));
  return CheckPrompt(request.negative_prompt, "negative_prompt", request.max_tokens, vocab_size,
                     context_length);
}

// Positions that a sequence may fill, counted from the start of its own prompt: a longer negative
// prompt is the first to reach the end.
int32_t ContextOf(const GenerationRequest& request, int32_t context_length) {
  const auto longer = std::ssize(request.negative_prompt) - std::ssize(request.prompt);
  return context_length - static_cast<int32_t>(std::max<std::ptrdiff_t>(longer, 0));
}

absl::StatusOr<const Rule*> RuleOf(const GenerationRequest& request) {
  PACELINE_ASSIGN_OR_RETURN(const Rule* rule, FindRule(request.speculation.verify));
  if (request.sampling.temperature == 0) return rule->lossless ? FindRule("greedy") : rule;
  const bool coupled = rule->group == RuleGroup::kCoupled;
  if (coupled && request.sampling.draw == DrawMethod::kInverseCdf) {
    return absl::InvalidArgumentError(
        "draw: rule coupled expects gumbel, which is its default, got inverse_cdf");
  }
  if (rule->name != "greedy") return rule;
  return absl::InvalidArgumentError(
      absl::StrCat("verify: rule greedy expects temperature 0, got ", request.sampling.temperature,
                   "; standard and match are exact at any temperature"));
}

int32_t ExitLayers(const SpeculationOptions& speculation, const LanguageModel& target) {
  return speculation.exit_layers != 0 ? speculation.exit_layers : target.num_layers() * 2 / 3;
}

absl::Status CheckDraft(const SpeculationOptions& speculation, const EngineModels& models) {
  if (speculation.draft == DraftKind::kModel && models.draft == nullptr) {
    return absl::FailedPreconditionError(
        "draft: model needs a second model, and none was loaded (--draft-model)");
  }
  if (speculation.draft == DraftKind::kModel &&
      models.draft->logit_width() < models.vocabulary.size) {
    return absl::FailedPreconditionError(
        absl::StrCat("draft model: expected logits of the target's ", models.vocabulary.size,
                     " tokens, got ", models.draft->logit_width()));
  }
  const int32_t layers = ExitLayers(speculation, *models.target);
  const int32_t all = models.target->num_layers();
  if (speculation.draft == DraftKind::kEarlyExit && (layers < 1 || layers >= all)) {
    return Refuse("exit_layers", absl::StrCat("a number in [1, ", all, "), the target's layers"),
                  layers);
  }
  return absl::OkStatus();
}

SamplingOptions SamplingOf(const GenerationRequest& request, const Vocabulary& vocabulary) {
  SamplingOptions sampling = request.sampling;
  sampling.eos_ids = EndIds(request, vocabulary);
  return sampling;
}

std::unique_ptr<Drafter> MakeDrafter(const GenerationRequest& request, const EngineModels& models,
                                     const Pipeline<float>& pipeline) {
  const SpeculationOptions& speculation = request.speculation;
  std::vector<int32_t> end_ids = EndIds(request, models.vocabulary);
  switch (speculation.draft) {
    case DraftKind::kNone:
      return nullptr;
    case DraftKind::kNgram:
      return std::make_unique<NgramDrafter>(speculation.ngram);
    case DraftKind::kModel:
      return std::make_unique<ModelDrafter>(models.draft, pipeline, std::move(end_ids));
    case DraftKind::kEarlyExit:
      return std::make_unique<EarlyExitDrafter>(
          models.target, ExitLayers(speculation, *models.target), pipeline, std::move(end_ids));
  }
  return nullptr;
}

// Choices that failed come last, then go by their mean log-probability; streams break ties.
void KeepBest(const GenerationRequest& request, std::vector<Choice>& choices) {
  if (request.best_of == 0) return;
  const auto score = [](const Choice& choice) {
    if (!choice.status.ok() || choice.tokens.empty()) return -std::numeric_limits<double>::infinity();
    return choice.cumulative_log_prob / static_cast<double>(choice.tokens.size());
  };
  std::stable_sort(choices.begin(), choices.end(),
                   [&](const Choice& a, const Choice& b) { return score(a) > score(b); });
  choices.resize(request.num_choices);
}

}  // namespace

Vocabulary VocabularyOf(const Tokenizer& tokenizer) {
  return {tokenizer.vocab_size(), tokenizer.end_ids(),
          [&tokenizer](int32_t id) { return tokenizer.Piece(id); }};
}

// One request on its way: the caches of its prompts, which every choice forks, and its result.
struct Engine::Job {
  const GenerationRequest* request;
  const Rule* rule;
  uint32_t first_choice;  // Number of its first choice over all requests.
  uint32_t num_started = 0;
  std::vector<SequenceId> prompt_caches;  // Of PromptsOf(request), once they are read.
  GenerationResult result;

  bool AllStarted() const { return num_started == NumStreams(*request); }
};

// A choice that takes part in rounds.
struct Engine::Running {
  Job* job;
  uint32_t index;
  std::unique_ptr<Sequence> sequence;
};

Engine::Engine(EngineModels models, EngineOptions options)
    : models_(std::move(models)), options_(options), target_(models_.target) {
  options_.max_batch = std::max(options_.max_batch, 1);
}

absl::Status Engine::Check(const GenerationRequest& request) const {
  const int32_t vocab_size = models_.vocabulary.size;
  if (request.max_tokens < 0) return Refuse("max_tokens", "0 or more", request.max_tokens);
  if (request.num_choices < 1) return Refuse("num_choices", "1 or more", request.num_choices);
  if (request.best_of != 0 && request.best_of < request.num_choices) {
    return Refuse("best_of", absl::StrCat(request.num_choices, " (num_choices) or more, or 0 (off)"),
                  request.best_of);
  }
  if (request.num_logprobs < -1 || request.num_logprobs > vocab_size) {
    return Refuse("logprobs", absl::StrCat("a number in [0, ", vocab_size, "], or -1 (off)"),
                  request.num_logprobs);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return absl::InvalidArgumentError("stop: expected no empty text");
  }
  PACELINE_RETURN_IF_ERROR(CheckIds(request.stop_ids, "stop_ids", vocab_size));
  PACELINE_RETURN_IF_ERROR(CheckPrompts(request, vocab_size, models_.target->context_length()));
  PACELINE_RETURN_IF_ERROR(
      Pipeline<float>::Create(SamplingOf(request, models_.vocabulary), vocab_size).status());
  PACELINE_RETURN_IF_ERROR(request.speculation.Validate());
  PACELINE_RETURN_IF_ERROR(RuleOf(request).status());
  PACELINE_RETURN_IF_ERROR(CheckMatrix(request));
  return CheckDraft(request.speculation, models_);
}

absl::StatusOr<GenerationResult> Engine::Generate(const GenerationRequest& request,
                                                  const Observer& observer) {
  return std::move(GenerateAll({&request, 1}, observer).front());
}

absl::StatusOr<std::unique_ptr<Engine::Job>> Engine::Admit(const GenerationRequest& request,
                                                           uint32_t first_choice) {
  const uint64_t ordinal = next_ordinal_++;
  PACELINE_RETURN_IF_ERROR(Check(request));
  PACELINE_ASSIGN_OR_RETURN(const Rule* rule, RuleOf(request));
  auto job = std::make_unique<Job>(Job{&request, rule, first_choice, 0, {}, {}});
  job->result.choices.resize(NumStreams(request));
  job->result.prompt_tokens = static_cast<int64_t>(request.prompt.size());
  job->result.seed = request.seed.value_or(DeriveSeed(options_.seed, ordinal));
  job->result.rule = std::string(rule->name);
  job->result.lossless = rule->lossless;
  return job;
}

absl::Status Engine::ReadPrompts(Job& job, const Observer& observer) {
  Stopwatch clock;
  for (const std::span<const int32_t> prompt : PromptsOf(*job.request)) {
    const absl::StatusOr<SequenceId> cache =
        target_.Start(prompt, [&](int64_t done, int64_t total) {
          if (observer.on_prompt) observer.on_prompt(done, total);
          return !observer.cancelled || !observer.cancelled();
        });
    if (!cache.ok()) {
      ReleaseAll(std::exchange(job.prompt_caches, {}));
      return cache.status();
    }
    job.prompt_caches.push_back(*cache);
  }
  job.result.prefill_ms = clock.Lap();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SequenceId>> Engine::Fork(std::span<const SequenceId> caches) {
  std::vector<SequenceId> forks;
  for (const SequenceId cache : caches) {
    const absl::StatusOr<SequenceId> fork = models_.target->cache().Fork(cache);
    if (!fork.ok()) {
      ReleaseAll(forks);
      return fork.status();
    }
    forks.push_back(*fork);
  }
  return forks;
}

absl::StatusOr<std::unique_ptr<Sequence>> Engine::StartChoice(Job& job, const Observer& observer) {
  if (job.prompt_caches.empty()) PACELINE_RETURN_IF_ERROR(ReadPrompts(job, observer));
  PACELINE_ASSIGN_OR_RETURN(Pipeline<float> pipeline,
                            Pipeline<float>::Create(SamplingOf(*job.request, models_.vocabulary),
                                                    models_.vocabulary.size));
  std::unique_ptr<Drafter> drafter = MakeDrafter(*job.request, models_, pipeline);
  PACELINE_ASSIGN_OR_RETURN(std::vector<SequenceId> caches, Fork(job.prompt_caches));
  return std::make_unique<Sequence>(
      Sequence::Parts{job.request, &models_.vocabulary, &observer, job.rule, std::move(pipeline),
                      std::move(drafter), StreamKey{job.result.seed, job.num_started},
                      job.first_choice + job.num_started,
                      ContextOf(*job.request, models_.target->context_length())},
      std::move(caches));
}

// Starts the job's next choice. A choice that cannot start ends with the reason.
void Engine::StartNext(Job& job, const Observer& observer, std::vector<Running>& running) {
  absl::StatusOr<std::unique_ptr<Sequence>> sequence = StartChoice(job, observer);
  const uint32_t index = job.num_started++;
  if (sequence.ok()) {
    running.push_back({&job, index, *std::move(sequence)});
  } else {
    Choice& choice = job.result.choices[index];
    choice.finish_reason = FinishReason::kInterrupted;
    if (!absl::IsCancelled(sequence.status())) choice.status = sequence.status();
  }
  if (job.AllStarted()) ReleaseAll(std::exchange(job.prompt_caches, {}));
}

void Engine::ReleaseAll(std::span<const SequenceId> caches) {
  // Fails for unknown ids only, and these are ours.
  for (const SequenceId cache : caches) (void)models_.target->cache().Release(cache);
}

void Engine::Retire(std::vector<Running>& running) {
  std::erase_if(running, [&](Running& entry) {
    if (entry.sequence->live()) return false;
    ReleaseAll(entry.sequence->caches());
    Choice& choice = entry.job->result.choices[entry.index];
    choice = entry.sequence->TakeChoice();
    choice.stream = entry.index;
    return true;
  });
}

void Engine::RunJobs(std::span<const std::unique_ptr<Job>> jobs, const Observer& observer) {
  std::vector<Running> running;
  auto next = jobs.begin();
  const auto can_start = [&] {
    while (next != jobs.end() && (*next == nullptr || (*next)->AllStarted())) ++next;
    return next != jobs.end();
  };
  while (can_start() || !running.empty()) {
    while (running.size() < static_cast<size_t>(options_.max_batch) && can_start()) {
      StartNext(**next, observer, running);
    }
    Retire(running);  // A choice may have nothing to do.
    if (observer.cancelled && observer.cancelled()) {
      for (Running& entry : running) entry.sequence->Interrupt();
      Retire(running);
      continue;
    }
    RunOneRound(running);
    Retire(running);
  }
}

void Engine::RunOneRound(std::span<const Running> running) {
  if (running.empty()) return;
  std::vector<Sequence*> batch;
  for (const Running& entry : running) batch.push_back(entry.sequence.get());
  Stopwatch clock;
  RunRound(batch, target_);
  const double share = clock.Lap() / static_cast<double>(batch.size());
  for (Sequence* sequence : batch) sequence->telemetry().rounds_ms += share;
}

std::vector<absl::StatusOr<GenerationResult>> Engine::GenerateAll(
    std::span<const GenerationRequest> requests, const Observer& observer) {
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<absl::Status> refused;
  uint32_t first_choice = 0;
  for (const GenerationRequest& request : requests) {
    absl::StatusOr<std::unique_ptr<Job>> job = Admit(request, first_choice);
    first_choice += NumStreams(request);
    refused.push_back(job.status());
    jobs.push_back(job.ok() ? *std::move(job) : nullptr);
  }
  RunJobs(jobs, observer);
  std::vector<absl::StatusOr<GenerationResult>> results;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i] == nullptr) {
      results.emplace_back(refused[i]);
    } else {
      KeepBest(*jobs[i]->request, jobs[i]->result.choices);
      results.emplace_back(std::move(jobs[i]->result));
    }
  }
  return results;
}

}  // namespace paceline
