// Drawing a chain token by token from a model's warped rows.
#pragma once

#include <functional>
#include <span>

#include "draft/drafter.h"
#include "sampling/pipeline.h"

namespace paceline {

// Logits that follow the committed tokens and `drafted`, valid until the next call. Called with
// growing prefixes of one chain, starting with the empty one.
using NextLogits =
    std::function<absl::StatusOr<std::span<const float>>(std::span<const int32_t> drafted)>;

// Draws up to `count` tokens: each row is warped by `pipeline` with its own history, the token is
// drawn with the draft noise of its (position, offset), and the row it was drawn from is handed
// over. At temperature 0 tokens are the argmax and the proposal is deterministic. Stops after a
// token of `end_ids`, which stays in the chain (a stopping time of the draft: algorithms F.5).
absl::StatusOr<Proposal<float>> DrawChain(const DraftRequest& request, int32_t count,
                                          Pipeline<float>& pipeline,
                                          std::span<const int32_t> end_ids,
                                          const NextLogits& next_logits);

}  // namespace paceline
