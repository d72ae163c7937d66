#include "verify/standard.h"

#include "verify/walk.h"

namespace paceline {
namespace {

template <typename Real>
absl::StatusOr<int32_t> JudgeSampled(const RuleInput<Real>& input, const Branch<Real>& branch,
                                     VerifyOutcome& outcome) {
  outcome.judged.push_back(JudgeRow(input, branch));
  const int32_t child = branch.child();
  const double target_prob = branch.row.Prob(input.proposal.tree.tokens[child]);
  PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input, branch, child));
  return JudgeByCoin(input, branch, target_prob, draft_prob, outcome);
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<Real>& input) {
  PACELINE_RETURN_IF_ERROR(CheckChain(input.proposal, "standard"));
  return WalkTree(input,
                  [&](const Branch<Real>& branch, VerifyOutcome& outcome) -> absl::StatusOr<int32_t> {
                    if (branch.draft.deterministic()) return JudgeByDraw(input, branch, outcome);
                    return JudgeSampled(input, branch, outcome);
                  });
}

template absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<double>&);

}  // namespace paceline
