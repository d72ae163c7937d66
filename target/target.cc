#include "target/target.h"

#include <algorithm>

#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr size_t kPromptChunk = 256;  // Tokens between two calls of Progress.

// The rows of one request: the last committed token, then the nodes.
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
};

Rows RowsOf(const ScoreRequest& request) {
  Rows rows{{request.last_token}, {-1}};
  rows.tokens.insert(rows.tokens.end(), request.tree->tokens.begin(), request.tree->tokens.end());
  for (int32_t parent : request.tree->parents) rows.parents.push_back(parent + 1);
  return rows;
}

absl::Status FeedPrompt(LanguageModel& model, SequenceId sequence, std::span<const int32_t> tokens,
                        const Target::Progress& progress) {
  for (size_t done = 0; done < tokens.size();) {
    const size_t count = std::min(kPromptChunk, tokens.size() - done);
    ForwardBatch batch;
    batch.segments.push_back({sequence, tokens.subspan(done, count), {}, RowWish::kNone});
    PACELINE_RETURN_IF_ERROR(model.Forward(batch).status());
    done += count;
    if (progress && !progress(static_cast<int64_t>(done), static_cast<int64_t>(tokens.size()))) {
      return absl::CancelledError("stopped while reading the prompt");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SequenceId> Target::Start(std::span<const int32_t> tokens,
                                         const Progress& progress) {
  if (tokens.empty()) {
    return absl::InvalidArgumentError("prompt: expected at least one token, got none");
  }
  const SequenceId sequence = model_->cache().Create();
  const absl::Status fed = FeedPrompt(*model_, sequence, tokens.first(tokens.size() - 1), progress);
  if (fed.ok()) return sequence;
  PACELINE_RETURN_IF_ERROR(model_->cache().Release(sequence));
  return fed;
}

absl::StatusOr<Scores> Target::Score(std::span<const ScoreRequest> requests) {
  std::vector<Rows> rows;
  for (const ScoreRequest& request : requests) rows.push_back(RowsOf(request));
  ForwardBatch batch;
  std::vector<int64_t> first_rows;
  int64_t next_row = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    batch.segments.push_back({requests[i].sequence, rows[i].tokens, rows[i].parents});
    first_rows.push_back(next_row);
    next_row += static_cast<int64_t>(rows[i].tokens.size());
  }
  PACELINE_ASSIGN_OR_RETURN(ForwardOutput output, model_->Forward(batch));
  return Scores(std::move(output), std::move(first_rows));
}

absl::Status Target::Commit(SequenceId sequence, const TokenTree& tree,
                            std::span<const int32_t> path) {
  std::vector<int32_t> kept = {0};
  for (int32_t node : path) kept.push_back(node + 1);
  const int32_t base = model_->cache().Length(sequence) - tree.size() - 1;
  return model_->cache().Compact(sequence, base, kept);
}

}  // namespace paceline
