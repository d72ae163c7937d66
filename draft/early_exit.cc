#include "draft/early_exit.h"

#include "base/status_macros.h"

namespace paceline {

absl::StatusOr<Proposal<float>> EarlyExitDrafter::Propose(const DraftRequest& request) {
  KvCache& cache = target_->cache();
  const int32_t committed_entries = cache.Length(request.target_sequence);
  const auto next_row = [&](std::span<const int32_t> drafted, int32_t best_of) {
    const auto tokens = drafted.empty() ? request.committed.last(1) : drafted.last(1);
    return target_->Forward({{{request.target_sequence, tokens, {}, RowWish::kLast}},
                             num_layers_, best_of});
  };
  absl::StatusOr<Proposal<float>> proposal =
      DrawChain(request, request.max_tokens, pipeline_, end_ids_, next_row);
  PACELINE_RETURN_IF_ERROR(cache.Truncate(request.target_sequence, committed_entries));
  return proposal;
}

}  // namespace paceline
