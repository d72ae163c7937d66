// The walk from the root that every rule makes which stops at the first refusal.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "verify/judge.h"

namespace paceline {

// At each node that has children, judge(branch, outcome) adds the figures of the row and returns the
// accepted child, or emits the round's last token and returns -1. At a leaf, and at the root of an empty proposal, the last token
// is drawn from the target. Rows that are not visited are not asked for.
template <typename Real, typename Judge>
absl::StatusOr<VerifyOutcome> WalkTree(const RuleInput<Real>& input, Judge judge) {
  const TokenTree& tree = input.proposal.tree;
  VerifyOutcome outcome = StartOutcome(input);
  int32_t node = -1;
  int32_t depth = 0;
  for (; tree.HasChildren(node); ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input, node, depth));
    PACELINE_ASSIGN_OR_RETURN(node, judge(branch, outcome));
    if (node < 0) return outcome;
    outcome.path.push_back(node);
  }
  PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(node));
  EmitDraw(input, *row, depth, FinalDecision(input), outcome);
  return outcome;
}

// The target draws, and a child that holds the drawn token is accepted; otherwise the token is
// emitted. Reads no draft row; expected acceptance is p(children).
template <typename Real>
int32_t JudgeByDraw(const RuleInput<Real>& input, const Branch<Real>& branch,
                    VerifyOutcome& outcome);

// Accepts the only child of a branch iff u * draft_prob < accept_prob; otherwise draws from
// norm((target - draft)+) and emits. Adds no figures.
template <typename Real>
int32_t JudgeByCoin(const RuleInput<Real>& input, const Branch<Real>& branch, double accept_prob,
                    double draft_prob, VerifyOutcome& outcome);

}  // namespace paceline
