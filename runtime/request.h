// What is asked of the engine, and what comes back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "draft/ngram.h"
#include "runtime/telemetry.h"
#include "sampling/log_probs.h"
#include "sampling/options.h"
#include "verify/rule.h"

namespace paceline {

enum class DraftKind { kNone, kNgram, kModel, kEarlyExit };

// Name of a draft source as in options and JSON: none, ngram, model, early-exit.
std::string_view DraftKindName(DraftKind kind);
absl::StatusOr<DraftKind> FindDraftKind(std::string_view name);

struct SpeculationOptions {
  DraftKind draft = DraftKind::kNgram;
  int32_t num_draft_tokens = 4;  // K, tokens drafted a round, in [1, 64].
  int32_t draft_min = 0;  // A shorter draft is not worth a wider pass and is dropped; 0 is off.
                          // A draft that was drawn is never dropped for what was drawn.
  std::string verify = "standard";  // Rule by name. At temperature 0 every rule is `greedy`.
  NgramOptions ngram;
  int32_t exit_layers = 0;  // Layers of the early-exit draft; 0 takes two thirds.
  RuleOptions rule;            // Settings of lossy rules.
  bool require_exact = false;  // Refuse a lossy rule.
  bool invariant = false;  // Refuse a rule whose tokens, for one seed, depend on the draft.

  absl::Status Validate() const;
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  // At least one id.
  // What guidance leads away from: the prompt of the unconditional rows. Empty: the prompt's last
  // token. Only with guidance_scale.
  std::vector<int32_t> negative_prompt;
  SamplingOptions sampling;     // eos_ids is filled in by the engine.
  SpeculationOptions speculation;
  int32_t max_tokens = 256;       // Output tokens; 0 gives an empty answer.
  std::optional<uint64_t> seed;   // Without one the engine derives it, and reports it.
  uint32_t num_choices = 1;       // Independent sequences, streams 0, 1, ... of one seed.
  uint32_t best_of = 0;  // Sequences run, of which the num_choices likeliest are kept, best first, by
                         // cumulative_log_prob a token; 0 is off.
  std::vector<std::string> stop;  // Text that ends the answer and is not part of it.
  std::vector<int32_t> stop_ids;  // Tokens that end the answer, besides the model's own.
  bool ignore_eos = false;        // The model's own end tokens are tokens like any other.
  int32_t num_logprobs = -1;      // Most likely alternatives reported with each token; -1 is off.
};

// Sequences that a request runs.
inline uint32_t NumStreams(const GenerationRequest& request) {
  return std::max(request.num_choices, request.best_of);
}

enum class FinishReason { kStop, kLength, kInterrupted };
std::string_view FinishReasonName(FinishReason reason);

// One token as it is committed. A last one with token -1 brings text that was held back when the
// request was interrupted.
struct EmittedToken {
  uint32_t choice = 0;
  uint32_t position = 0;
  int32_t token = 0;
  Decision decision = Decision::kPlain;
  std::string_view
      text;  // What can be shown now; may be empty, may end with text of earlier tokens.
};

// Called while a request runs; every member may be empty.
struct Observer {
  std::function<void(const EmittedToken&)> on_token;
  std::function<void(uint32_t choice, std::span<const TokenTrace>)> on_trace;  // After each round.
  std::function<void(int64_t done, int64_t total)> on_prompt;                  // After each chunk.
  std::function<bool()> cancelled;  // True ends the request with what it has.
};

struct Choice {
  uint32_t stream = 0;          // Of the request's seed.
  std::vector<int32_t> tokens;  // Committed output, an end token included.
  std::string text;             // Without what a stop string cut off.
  FinishReason finish_reason = FinishReason::kLength;
  absl::Status
      status;  // Not OK if the request failed on the way; the rest is what was made before.
  double cumulative_log_prob = 0;  // Of the tokens, each in the processed row that judged it.
  std::vector<LogProbs> raw_logprobs;        // [tokens] if asked for.
  std::vector<LogProbs> processed_logprobs;  // [tokens] if asked for.
  Telemetry telemetry;
};

struct GenerationResult {
  std::vector<Choice> choices;  // [num_choices], by stream, or the best first.
  int64_t prompt_tokens = 0;
  double prefill_ms = 0;
  uint64_t seed = 0;
  std::string rule;  // The rule that judged: verify, or `greedy` at temperature 0.
  bool lossless = true;
};

}  // namespace paceline
