// Start here: the engine runs requests by rounds of draft, score, verify, commit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/tokenizer.h"
#include "runtime/request.h"
#include "target/target.h"

namespace paceline {

class Sequence;

// What the engine needs of a tokenizer.
struct Vocabulary {
  int32_t size = 0;                                   // Logits beyond it are padding.
  std::vector<int32_t> end_ids;                       // The model's own end tokens.
  std::function<std::string_view(int32_t id)> piece;  // Bytes of a token; empty for control tokens.
};

// A view of `tokenizer`, which must outlive it.
Vocabulary VocabularyOf(const Tokenizer& tokenizer);

// The models an engine works with. Not owned; they outlive the engine.
struct EngineModels {
  LanguageModel* target = nullptr;
  LanguageModel* draft = nullptr;  // Needed by DraftKind::kModel only; speaks the same vocabulary.
  Vocabulary vocabulary;
};

struct EngineOptions {
  uint64_t seed = 0;      // Requests without a seed derive theirs from it and their ordinal.
  int32_t max_batch = 8;  // Sequences that share a pass, at least 1.
};

// Runs requests, alone or together; a request's tokens are the same either way. Not thread-safe.
class Engine {
 public:
  Engine(EngineModels models, EngineOptions options);

  // Runs one request to its end. Errors: kInvalidArgument, kOutOfRange, kFailedPrecondition for
  // what is refused before any pass; the message names the argument. What fails later is in
  // Choice::status.
  absl::StatusOr<GenerationResult> Generate(const GenerationRequest& request,
                                            const Observer& observer = {});

  // Runs requests together, max_batch sequences at a time, in their order. One entry a request.
  // observer.on_token tells choices by their number over all requests.
  std::vector<absl::StatusOr<GenerationResult>> GenerateAll(
      std::span<const GenerationRequest> requests, const Observer& observer = {});

  // OK, or why the request would be refused.
  absl::Status Check(const GenerationRequest& request) const;

 private:
  struct Job;      // One request on its way.
  struct Running;  // One of its choices.

  absl::StatusOr<std::unique_ptr<Job>> Admit(const GenerationRequest& request,
                                             uint32_t first_choice);
  void RunJobs(std::span<const std::unique_ptr<Job>> jobs, const Observer& observer);
  void StartNext(Job& job, const Observer& observer, std::vector<Running>& running);
  absl::StatusOr<std::unique_ptr<Sequence>> StartChoice(Job& job, const Observer& observer);
  absl::Status ReadPrompts(Job& job, const Observer& observer);
  absl::StatusOr<std::vector<SequenceId>> Fork(std::span<const SequenceId> caches);
  void RunOneRound(std::span<const Running> running);
  void Retire(std::vector<Running>& running);
  void ReleaseAll(std::span<const SequenceId> caches);

  EngineModels models_;
  EngineOptions options_;
  Target target_;
  uint64_t next_ordinal_ = 0;
};

}  // namespace paceline
