// One sequence being generated: its committed tokens and everything that moves with them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "runtime/engine.h"
#include "runtime/text_streamer.h"
#include "runtime/warped_rows.h"
#include "sampling/pipeline.h"
#include "target/target.h"
#include "verify/rules.h"

namespace paceline {

// The prompts whose continuations a request scores: its own and, under guidance, the negative one.
std::vector<std::span<const int32_t>> PromptsOf(const GenerationRequest& request);

// The tokens that end a request: its own stop ids and, unless ignored, the model's end tokens.
std::vector<int32_t> EndIds(const GenerationRequest& request, const Vocabulary& vocabulary);

// What a round commits: the tokens up to and including the first ending, if any.
struct Cut {
  std::vector<int32_t>
      tokens;  // Accepted tokens and the final one, cut at an ending; at least one.
  std::vector<std::string> texts;  // [tokens] What can be shown after each.
  std::vector<int32_t> path;  // Accepted nodes whose cache entries stay: all but the last token's.
  int32_t num_accepted = 0;   // Accepted tokens that are committed.
  bool in_path =
      false;  // The ending is an accepted token: what was drafted after it does not count.
};

// History, sampler state, drafter, caches, text and counters of one choice of a request. They move
// together, in Commit, and by committed tokens only. Not thread-safe.
class Sequence {
 public:
  struct Parts {
    const GenerationRequest* request;  // Outlives the sequence.
    const Vocabulary* vocabulary;      // Likewise.
    const Observer* observer;          // Likewise.
    const Rule* rule;
    Pipeline<float> pipeline;
    std::unique_ptr<Drafter> drafter;  // Null without drafting.
    StreamKey key;
    uint32_t choice_number;  // As the observer is told.
    int32_t context_length;
  };

  // `caches` hold PromptsOf(request) but their last tokens, and stay with the caller.
  Sequence(Parts parts, std::vector<SequenceId> caches);

  bool live() const { return !finished_; }
  std::span<const SequenceId> caches() const { return caches_; }
  const Proposal<float>& proposal() const { return proposal_; }
  std::span<const int32_t> committed() const { return committed_; }

  // Draft: fills proposal() with at most what may still be emitted; empty without a drafter.
  absl::Status Draft();

  // Verify: the rule's decisions on proposal(), given its target rows.
  absl::StatusOr<VerifyOutcome> Judge(WarpedRows& rows);

  // What a pass has to score: proposal() behind the last token in each of caches().
  void AddTo(std::vector<ScoreRequest>& requests) const;

  // Warped rows over the target's logits of proposal(): raw(i, node) is the row in the i-th cache.
  WarpedRows RowsOver(WarpedRows::RawRow raw);

  // Cuts an outcome at the first end token, stop string, budget or context limit, in token order.
  // Advances the text, which follows committed tokens only.
  Cut CutAtEnding(const VerifyOutcome& outcome);

  // Commit: `cut` becomes history; counters, log-probabilities and drafter follow.
  absl::Status Commit(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows);

  // Ends the sequence from outside: interrupted, or failed.
  void Interrupt();
  void Fail(absl::Status status);

  Telemetry& telemetry() { return choice_.telemetry; }
  // The result; the sequence must be finished.
  Choice TakeChoice();

 private:
  int32_t DraftBudget() const;
  absl::Status AsOurFault(const absl::Status& status) const;
  bool Ends(int32_t token) const;
  void Finish(FinishReason reason);
  void Report(const Cut& cut, const VerifyOutcome& outcome);
  void Measure(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows);
  absl::Status MoveMu(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows);
  absl::Status AddLogProbs(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows);

  Parts parts_;
  std::vector<SequenceId> caches_;
  std::vector<int32_t> committed_;  // Prompt, then output.
  int32_t prompt_length_;
  TokenCounts counts_;
  double mirostat_mu_;
  std::vector<int32_t> end_ids_;  // What ends this request.
  DrawMethod draw_;
  StreamRandomness randomness_;
  TextStreamer text_;
  Proposal<float> proposal_;
  std::vector<Distribution<float>> row_memory_;  // Of the target's warped rows.
  RuleMemory rule_memory_;
  bool finished_ = false;
  Choice choice_;
};

}  // namespace paceline
