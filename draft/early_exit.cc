#include "draft/early_exit.h"

#include "base/status_macros.h"

namespace paceline {

absl::StatusOr<Proposal<float>> EarlyExitDrafter::Propose(const DraftRequest& request) {
  KvCache& cache = target_->cache();
  const int32_t committed_entries = cache.Length(request.target_sequence);
  ForwardOutput output;
  const auto next_logits =
      [&](std::span<const int32_t> drafted) -> absl::StatusOr<std::span<const float>> {
    const auto tokens = drafted.empty() ? request.committed.last(1) : drafted.last(1);
    ForwardBatch batch;
    batch.num_layers = num_layers_;
    batch.segments.push_back({request.target_sequence, tokens, {}, RowWish::kLast});
    PACELINE_ASSIGN_OR_RETURN(output, target_->Forward(batch));
    return output.Row(0);
  };
  absl::StatusOr<Proposal<float>> proposal =
      DrawChain(request, request.max_tokens, pipeline_, end_ids_, next_logits);
  PACELINE_RETURN_IF_ERROR(cache.Truncate(request.target_sequence, committed_entries));
  return proposal;
}

}  // namespace paceline
