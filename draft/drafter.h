// The interface of drafters: proposers of the next tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/philox.h"
#include "models/kv_cache.h"
#include "sampling/draw.h"
#include "sampling/history.h"
#include "sampling/proposal.h"

namespace paceline {

// What a drafter may know when it proposes: the committed tokens and its own noise. Views belong to
// the sequence.
struct DraftRequest {
  std::span<const int32_t> committed;  // Prompt, then output; at least one token.
  int32_t prompt_length = 0;
  const TokenCounts* counts = nullptr;
  StreamKey key;
  DrawMethod draw = DrawMethod::kInverseCdf;
  bool xtc_by_round = false;  // As RowContext has it for the target's rows.
  double mirostat_mu = 0;     // Of the next token; a drafter moves it along its own draft.
  bool shared_noise = false;  // Drafts read the target's own token noise: rule `coupled` alone.
  SequenceId target_sequence = -1;  // For drafters that work in the target's own cache.
  int32_t max_tokens = 0;           // K of this round, at least 1; fewer is always allowed.
};

// Proposes tokens for one sequence. After every Commit its state equals the state that it would
// have with the committed tokens alone. Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view name() const = 0;

  // At most max_tokens drafted tokens with the rows they were drawn from. Proposing nothing is
  // legal. Errors: those of the model behind it; the sequence's caches are then as before.
  virtual absl::StatusOr<Proposal<float>> Propose(const DraftRequest& request) = 0;

  // The round is over: `committed` is the whole sequence now, and starts with what Propose was
  // given.
  virtual absl::Status Commit(std::span<const int32_t> committed) = 0;
};

}  // namespace paceline
