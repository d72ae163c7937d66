#include "verify/rrs.h"

#include <span>

#include "verify/walk.h"

namespace paceline {
namespace {

// The rows of a branch's candidates, one after the other.
template <typename Real>
class CandidateRows {
 public:
  CandidateRows(const Branch<Real>& branch, RuleMemory* memory)
      : branch_(branch), memory_(memory), row_(branch.draft.row(), memory) {}

  // The row that the j-th candidate was drawn from. j goes up by one a call.
  const WorkingRow<Real>& Row(size_t j) {
    if (branch_.draft.rows().size() > 1 && j > 0) {
      row_ = WorkingRow<Real>(branch_.draft.row(j), memory_);
    }
    return row_;
  }
  // `token` was drawn: without replacement it is not there for the next.
  void Drawn(int32_t token) {
    if (branch_.draft.kind() == ProposalDist<Real>::Kind::kWithoutReplacement) row_.Remove(token);
  }

 private:
  const Branch<Real>& branch_;
  RuleMemory* memory_;
  WorkingRow<Real> row_;
};

template <typename Real>
absl::StatusOr<int32_t> JudgeCandidates(const RuleInput<Real>& input, const Branch<Real>& branch,
                                        VerifyOutcome& outcome) {
  const bool independent = branch.draft.kind() == ProposalDist<Real>::Kind::kIndependent;
  if (!independent && branch.draft.kind() != ProposalDist<Real>::Kind::kWithoutReplacement) {
    return UnfitDraws("rrs", "candidates drawn from rows", branch.node);
  }
  const std::span<const int32_t> candidates =
      independent ? branch.draft.draws() : std::span<const int32_t>(branch.children);
  outcome.judged.push_back(JudgeRow(input, branch));
  CandidateRows<Real> rows(branch, input.memory);
  WorkingRow<Real> left(branch.row, input.memory);
  for (size_t j = 0; j < candidates.size(); ++j) {
    const int32_t child = candidates[j];
    const int32_t token = input.proposal.tree.tokens[child];
    const WorkingRow<Real>& row = rows.Row(j);
    const double draft_prob = row.Prob(token);
    PACELINE_RETURN_IF_ERROR(DraftProbOf(input, branch, child, j).status());
    const double target_prob = left.Prob(token);
    if (target_prob > 0) {
      const NoiseAddress noise = AcceptNoise(input, child, branch.depth);
      const CoinFlip flip = input.randomness.Coin(noise, target_prob, draft_prob);
      TraceChild(input, branch, child, draft_prob, flip.uniform,
                 flip.accepted ? Decision::kAccepted : Decision::kRejected, outcome);
      if (flip.accepted) return child;
    } else {
      TraceChild(input, branch, child, draft_prob, kNoNumber, Decision::kRejected, outcome);
    }
    left.Subtract(1.0, row);
    rows.Drawn(token);
  }
  EmitLeft(input, branch.row, left, branch.depth, outcome);
  return -1;
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyRrs(const RuleInput<Real>& input) {
  return WalkTree(input, [&](const Branch<Real>& branch, VerifyOutcome& outcome) {
    return JudgeCandidates(input, branch, outcome);
  });
}

template absl::StatusOr<VerifyOutcome> VerifyRrs(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyRrs(const RuleInput<double>&);

}  // namespace paceline
