#include "runtime/round.h"

#include <vector>

#include "base/status_macros.h"
#include "base/stopwatch.h"

namespace paceline {
namespace {

// Verify, cut, commit: what follows the target pass for the i-th of the scored sequences.
absl::Status Settle(Sequence& sequence, const Scores& scores, size_t i, Target& target) {
  WarpedRows rows = sequence.RowsOver([&](int32_t node) { return scores.Row(i, node); });
  PACELINE_ASSIGN_OR_RETURN(const VerifyOutcome outcome, sequence.Judge(rows));
  const Cut cut = sequence.CutAtEnding(outcome);
  PACELINE_RETURN_IF_ERROR(target.Commit(sequence.cache(), sequence.proposal().tree, cut.path));
  return sequence.Commit(cut, outcome, rows);
}

void EndIfFailed(Sequence& sequence, absl::Status status) {
  if (!status.ok()) sequence.Fail(std::move(status));
}

}  // namespace

void RunRound(std::span<Sequence* const> batch, Target& target) {
  Stopwatch clock;
  std::vector<Sequence*> drafted;
  std::vector<ScoreRequest> requests;
  for (Sequence* sequence : batch) {
    EndIfFailed(*sequence, sequence->Draft());
    sequence->telemetry().draft_ms += clock.Lap();
    if (!sequence->live()) continue;
    drafted.push_back(sequence);
    requests.push_back({sequence->cache(), sequence->last_token(), &sequence->proposal().tree});
  }
  if (drafted.empty()) return;

  const absl::StatusOr<Scores> scores = target.Score(requests);
  const double target_share = clock.Lap() / static_cast<double>(drafted.size());

  for (size_t i = 0; i < drafted.size(); ++i) {
    Sequence& sequence = *drafted[i];
    EndIfFailed(sequence, scores.ok() ? Settle(sequence, *scores, i, target) : scores.status());
    sequence.telemetry().target_ms += target_share;
    sequence.telemetry().verify_ms += clock.Lap();
  }
}

}  // namespace paceline
