// A second, smaller model as the drafter.
#pragma once

#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "draft/sampled_chain.h"
#include "models/language_model.h"
#include "sampling/pipeline.h"

namespace paceline {

// Drafts up to K tokens by K passes of a model that shares the target's tokenizer, warped by the
// same settings as the target. Its cache holds committed tokens only after every Commit; tokens
// that it has not seen (the last one, and a draft that was accepted without having been fed) are
// fed first by the next Propose. Proposes nothing where its own context would be passed. Cost: K
// passes. Source: Leviathan et al. 2023; algorithms E.1, I.3.
class ModelDrafter : public Drafter {
 public:
  // `model` is shared by drafters and outlives them. `end_ids` as in DrawChain.
  ModelDrafter(LanguageModel* model, Pipeline<float> pipeline, std::vector<int32_t> end_ids);
  ~ModelDrafter() override;
  ModelDrafter(const ModelDrafter&) = delete;
  ModelDrafter& operator=(const ModelDrafter&) = delete;

  std::string_view name() const override { return "model"; }
  absl::StatusOr<Proposal<float>> Propose(const DraftRequest& request) override;
  absl::Status Commit(std::span<const int32_t> committed) override;

  // Entries of its cache, for tests of the invariant.
  int32_t cached() const { return static_cast<int32_t>(cached_.size()); }

 private:
  absl::StatusOr<ForwardOutput> Feed(std::span<const int32_t> tokens, int32_t best_of);

  LanguageModel* model_;
  Pipeline<float> pipeline_;
  std::vector<int32_t> end_ids_;
  SequenceId sequence_;
  std::vector<int32_t> cached_;  // Tokens in the cache.
};

}  // namespace paceline
