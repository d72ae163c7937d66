// The walk of lossy rules that accept a token for what it is, whatever it was drawn from.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "verify/walk.h"

namespace paceline {

// Of a branch with one child, of which a token with accepts(token) is kept and any other replaced by
// one of `last`: the share that is kept, and the total variation of the emitted token from the row.
template <typename Real, typename Accepts>
JudgedRow JudgeTolerance(const RuleInput<Real>& input, const Branch<Real>& branch,
                         const Distribution<Real>& last, Accepts accepts) {
  const int32_t child = input.proposal.tree.tokens[branch.child()];
  const Distribution<Real> picked = Distribution<Real>::OneHot(child, branch.row.vocab_size());
  const Distribution<Real>& draft = branch.draft.deterministic() ? picked : branch.draft.row();
  std::vector<double> emitted(branch.row.vocab_size(), 0.0);
  JudgedRow judged{0};
  for (size_t i = 0; i < draft.probs().size(); ++i) {
    if (!(draft.probs()[i] > 0) || !accepts(draft.IdAt(i))) continue;
    emitted[draft.IdAt(i)] = draft.probs()[i];
    judged.expected_acceptance += draft.probs()[i];
  }
  for (size_t i = 0; i < last.probs().size(); ++i) {
    emitted[last.IdAt(i)] += (1 - judged.expected_acceptance) * last.probs()[i];
  }
  for (size_t i = 0; i < branch.row.probs().size(); ++i) {
    emitted[branch.row.IdAt(i)] -= branch.row.probs()[i];
  }
  double sum = 0;
  for (const double difference : emitted) sum += std::abs(difference);
  judged.deviation = sum / 2;
  return judged;
}

// At each node goes to the first child, in draw order, whose token accepts(token) of its row takes;
// otherwise emits a token drawn from the row. `accepts_of(row)` makes `accepts`, `last_of(row)` the
// row of the last token, as `input.randomness` draws it.
template <typename Real, typename AcceptsOf, typename LastOf>
absl::StatusOr<VerifyOutcome> WalkTolerantly(const RuleInput<Real>& input, AcceptsOf accepts_of,
                                             LastOf last_of) {
  return WalkTree(input, [&](const Branch<Real>& branch,
                             VerifyOutcome& outcome) -> absl::StatusOr<int32_t> {
    const auto accepts = accepts_of(branch.row);
    const bool certain = branch.draft.kind() == ProposalDist<Real>::Kind::kCertainFirst;
    outcome.judged.push_back(branch.children.size() == 1 && !certain && input.figures
                                 ? JudgeTolerance(input, branch, last_of(branch.row), accepts)
                                 : JudgedRow());
    for (const int32_t child : branch.children) {
      const bool accepted = accepts(input.proposal.tree.tokens[child]);
      TraceChild(input, branch, child, kNoNumber, kNoNumber,
                 accepted ? Decision::kAccepted : Decision::kRejected, outcome);
      if (accepted) return child;
    }
    EmitDraw(input, branch.row, branch.depth, Decision::kRecovered, outcome);
    return -1;
  });
}

}  // namespace paceline
