// Drawing a chain token by token from a model's warped rows.
#pragma once

#include <functional>
#include <span>

#include "draft/drafter.h"
#include "models/language_model.h"
#include "sampling/pipeline.h"

namespace paceline {

// A pass that gives the one row that follows the committed tokens and `drafted`, of which
// BestAmong(0, best_of) will be asked if best_of > 0, else the logits. Called with growing prefixes
// of one chain, starting with the empty one.
using NextRow = std::function<absl::StatusOr<ForwardOutput>(std::span<const int32_t> drafted,
                                                            int32_t best_of)>;

// Draws up to `count` tokens: each row is warped by `pipeline` with its own history, the token is
// drawn with the draft noise of its (position, offset), or with the target's noise of its position
// where that is shared, and the row it was drawn from is handed over. At temperature 0 tokens are the
// argmax and the proposal is deterministic. Stops after a token of `end_ids`, which stays in the
// chain (a stopping time of the draft: algorithms F.5).
absl::StatusOr<Proposal<float>> DrawChain(const DraftRequest& request, int32_t count,
                                          Pipeline<float>& pipeline,
                                          std::span<const int32_t> end_ids,
                                          const NextRow& next_row);

}  // namespace paceline
