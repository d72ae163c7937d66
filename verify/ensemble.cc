#include "verify/ensemble.h"

#include "verify/walk.h"

namespace paceline {
namespace {

template <typename Real>
absl::StatusOr<int32_t> JudgeMixture(const RuleInput<Real>& input, const Branch<Real>& branch,
                                     VerifyOutcome& outcome) {
  const double weight = input.options.ensemble_weight;
  const int32_t child = branch.child();
  const double target_prob = branch.row.Prob(input.proposal.tree.tokens[child]);
  PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input, branch, child));
  JudgedRow judged = JudgeRow(input, branch);
  const double distance = 1 - judged.expected_acceptance;  // TV(p, q)
  judged.expected_acceptance = 1 - weight * distance;
  judged.deviation = (1 - weight) * distance;
  outcome.judged.push_back(judged);
  const double accept_prob = weight * target_prob + (1 - weight) * draft_prob;
  return JudgeByCoin(input, branch, accept_prob, draft_prob, outcome);
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyEnsemble(const RuleInput<Real>& input) {
  PACELINE_RETURN_IF_ERROR(CheckChain(input.proposal, "ensemble"));
  return WalkTree(input, [&](const Branch<Real>& branch, VerifyOutcome& outcome) {
    return JudgeMixture(input, branch, outcome);
  });
}

template absl::StatusOr<VerifyOutcome> VerifyEnsemble(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyEnsemble(const RuleInput<double>&);

}  // namespace paceline
