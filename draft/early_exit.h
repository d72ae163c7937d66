// The target's own first layers as the drafter.
#pragma once

#include <vector>

#include "draft/drafter.h"
#include "draft/sampled_chain.h"
#include "models/language_model.h"
#include "sampling/pipeline.h"

namespace paceline {

// Runs the first `num_layers` layers of the target, then its final norm and head, in the target's
// own cache: the drafted rows lie behind the committed entries and are dropped before the target
// scores, which writes all layers of the same places. No memory of its own. Cost: K passes of
// num_layers / N of a target pass. Source: Elhoushi et al. 2024; algorithms E.4.
class EarlyExitDrafter : public Drafter {
 public:
  // `target` outlives the drafter; num_layers in [1, layers of the target).
  EarlyExitDrafter(LanguageModel* target, int32_t num_layers, Pipeline<float> pipeline,
                   std::vector<int32_t> end_ids)
      : target_(target),
        num_layers_(num_layers),
        pipeline_(std::move(pipeline)),
        end_ids_(std::move(end_ids)) {}

  std::string_view name() const override { return "early-exit"; }
  absl::StatusOr<Proposal<float>> Propose(const DraftRequest& request) override;
  absl::Status Commit(std::span<const int32_t>) override { return absl::OkStatus(); }

 private:
  LanguageModel* target_;
  int32_t num_layers_;
  Pipeline<float> pipeline_;
  std::vector<int32_t> end_ids_;
};

}  // namespace paceline
