#include "runtime/round.h"

#include <vector>

#include "base/status_macros.h"
#include "base/stopwatch.h"

namespace paceline {
namespace {

// Verify, cut, commit: what follows the target pass, in which the sequence's requests are those from
// `first` on.
absl::Status Settle(Sequence& sequence, const Scores& scores, size_t first, Target& target) {
  WarpedRows rows = sequence.RowsOver(
      [&](size_t cache, int32_t node) { return scores.Row(first + cache, node); });
  PACELINE_ASSIGN_OR_RETURN(const VerifyOutcome outcome, sequence.Judge(rows));
  const Cut cut = sequence.CutAtEnding(outcome);
  for (const SequenceId cache : sequence.caches()) {
    PACELINE_RETURN_IF_ERROR(target.Commit(cache, sequence.proposal().tree, cut.path));
  }
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
    sequence->AddTo(requests);
  }
  if (drafted.empty()) return;

  const absl::StatusOr<Scores> scores = target.Score(requests);
  const double target_share = clock.Lap() / static_cast<double>(drafted.size());

  size_t first = 0;
  for (Sequence* const drafted_sequence : drafted) {
    Sequence& sequence = *drafted_sequence;
    EndIfFailed(sequence, scores.ok() ? Settle(sequence, *scores, first, target) : scores.status());
    first += sequence.caches().size();
    sequence.telemetry().target_ms += target_share;
    sequence.telemetry().verify_ms += clock.Lap();
  }
}

}  // namespace paceline
