#include "verify/match.h"

#include <algorithm>

#include "verify/walk.h"

namespace paceline {

namespace {

// P(target = token | draft = token) = 1 / sum_y max(q_x p_y / p_x, q_y).
template <typename Real>
double CoupledAcceptance(const Branch<Real>& branch, int32_t token) {
  const double target_prob = branch.row.Prob(token);
  const double draft_prob = branch.draft.row().Prob(token);
  if (!(target_prob > 0)) return 0;
  double sum = 0;
  branch.row.Merge(branch.draft.row(), [&](int32_t, double target, double draft) {
    sum += std::max(draft_prob / target_prob * target, draft);
  });
  return 1 / sum;
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<Real>& input) {
  return WalkTree(input,
                  [&](const Branch<Real>& branch, VerifyOutcome& outcome) -> absl::StatusOr<int32_t> {
                    return JudgeByDraw(input, branch, outcome);
                  });
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<Real>& input) {
  LargestWeight largest;
  return VerifyMatch(WithRandomness(input, largest));
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyCoupled(const RuleInput<Real>& input) {
  PACELINE_RETURN_IF_ERROR(CheckChain(input.proposal, "coupled"));
  return WalkTree(input,
                  [&](const Branch<Real>& branch, VerifyOutcome& outcome) -> absl::StatusOr<int32_t> {
                    const int32_t child = JudgeByDraw(input, branch, outcome);
                    if (branch.draft.deterministic() || !input.figures) return child;
                    JudgedRow& judged = outcome.judged.back();
                    judged = JudgeRow(input, branch);
                    judged.expected_acceptance =
                        CoupledAcceptance(branch, input.proposal.tree.tokens[branch.child()]);
                    return child;
                  });
}

template absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<double>&);
template absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<double>&);
template absl::StatusOr<VerifyOutcome> VerifyCoupled(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyCoupled(const RuleInput<double>&);

}  // namespace paceline
