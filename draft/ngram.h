// Prompt lookup: what followed the last occurrence of the sequence's own ending.
#pragma once

#include "draft/drafter.h"

namespace paceline {

struct NgramOptions {
  int32_t max_n = 3;  // Longest ending looked up, at least min_n.
  int32_t min_n = 2;  // Shortest, at least 1; single tokens are found everywhere, and seldom continue alike.

  absl::Status Validate() const;
};

// For n from max_n down to min_n: finds the last n tokens earlier in the sequence and proposes what
// followed them; the first n that is found wins, among its matches the most recent one. The
// proposal may run into the ending itself. Deterministic: a function of the committed tokens, no
// state. Cost: O(sequence length) comparisons a round, microseconds at a few thousand tokens.
// Source: Saxena 2023, prompt lookup decoding.
class NgramDrafter : public Drafter {
 public:
  explicit NgramDrafter(NgramOptions options) : options_(options) {}

  std::string_view name() const override { return "ngram"; }
  absl::StatusOr<Proposal<float>> Propose(const DraftRequest& request) override;
  absl::Status Commit(std::span<const int32_t>) override { return absl::OkStatus(); }

 private:
  NgramOptions options_;
};

}  // namespace paceline
