#include "draft/model_drafter.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace paceline {

ModelDrafter::ModelDrafter(LanguageModel* model, Pipeline<float> pipeline,
                           std::vector<int32_t> end_ids)
    : model_(model),
      pipeline_(std::move(pipeline)),
      end_ids_(std::move(end_ids)),
      sequence_(model->cache().Create()) {}

ModelDrafter::~ModelDrafter() { (void)model_->cache().Release(sequence_); }

absl::StatusOr<ForwardOutput> ModelDrafter::Feed(std::span<const int32_t> tokens,
                                                 int32_t best_of) {
  PACELINE_ASSIGN_OR_RETURN(
      ForwardOutput output,
      model_->Forward({{{sequence_, tokens, {}, RowWish::kLast}}, 0, best_of}));
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return output;
}

absl::StatusOr<Proposal<float>> ModelDrafter::Propose(const DraftRequest& request) {
  const int32_t length = static_cast<int32_t>(request.committed.size());
  const int32_t count = std::min(request.max_tokens, model_->context_length() - length);
  if (count < 1) return Proposal<float>();
  const auto next_row = [&](std::span<const int32_t> drafted, int32_t best_of) {
    return Feed(drafted.empty() ? request.committed.subspan(cached_.size()) : drafted.last(1),
                best_of);
  };
  absl::StatusOr<Proposal<float>> proposal =
      DrawChain(request, count, pipeline_, end_ids_, next_row);
  if (!proposal.ok()) PACELINE_RETURN_IF_ERROR(Commit(request.committed));
  return proposal;
}

absl::Status ModelDrafter::Commit(std::span<const int32_t> committed) {
  const auto [stale, end] =
      std::mismatch(cached_.begin(), cached_.end(), committed.begin(), committed.end());
  // The last committed token is fed by the next Propose, which needs its row.
  const auto keep =
      std::min<int64_t>(stale - cached_.begin(), static_cast<int64_t>(committed.size()) - 1);
  cached_.resize(keep);
  return model_->cache().Truncate(sequence_, static_cast<int32_t>(keep));
}

}  // namespace paceline
