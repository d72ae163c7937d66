// What verification needs of the big model: score drafted trees in one pass, keep the accepted
// path.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/token_tree.h"
#include "models/language_model.h"

namespace paceline {

// One sequence's part of a scoring pass. Its cache holds every committed token but the last.
struct ScoreRequest {
  SequenceId sequence;
  int32_t last_token;     // The last committed token: the root of the tree.
  const TokenTree* tree;  // Not owned; empty for plain decoding.
};

// Logits of a scoring pass: for every request one row for the root and one a node. Movable; owns
// its rows.
class Scores {
 public:
  Scores(ForwardOutput output, std::vector<int64_t> first_rows)
      : output_(std::move(output)), first_rows_(std::move(first_rows)) {}

  // The row that predicts the children of `node` (-1: the root) of the i-th request.
  std::span<const float> Row(size_t request, int32_t node) const {
    return output_.Row(first_rows_[request] + node + 1);
  }

 private:
  ForwardOutput output_;
  std::vector<int64_t> first_rows_;
};

// The target model and the caches of its sequences. Does not own the model. Not thread-safe.
class Target {
 public:
  explicit Target(LanguageModel* model) : model_(model) {}

  // Called after each chunk of a prompt with the tokens done and their total; false stops.
  using Progress = std::function<bool(int64_t done, int64_t total)>;

  // A new sequence whose cache holds `tokens` but the last: the state that rounds start from.
  // Errors: kInvalidArgument (no tokens), kCancelled (progress said stop), those of the model.
  // Nothing is left behind on an error.
  absl::StatusOr<SequenceId> Start(std::span<const int32_t> tokens, const Progress& progress = {});

  // Scores all trees in one pass: the last committed token and the N drafted ones give N + 1 rows.
  // Afterwards each cache holds the scored rows behind its committed entries, until Commit.
  absl::StatusOr<Scores> Score(std::span<const ScoreRequest> requests);

  // Ends a round: keeps the last committed token and the accepted nodes of `tree`, in path order,
  // drops the rest. The new last token is fed by the next round.
  absl::Status Commit(SequenceId sequence, const TokenTree& tree, std::span<const int32_t> path);

  LanguageModel& model() { return *model_; }

 private:
  LanguageModel* model_;
};

}  // namespace paceline
