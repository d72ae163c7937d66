#include "verify/walk.h"

#include <algorithm>

namespace paceline {

template <typename Real>
int32_t JudgeByDraw(const RuleInput<Real>& input, const Branch<Real>& branch,
                    VerifyOutcome& outcome) {
  const TokenTree& tree = input.proposal.tree;
  JudgedRow judged{0};
  for (const int32_t node : branch.children) {
    judged.expected_acceptance += branch.row.Prob(tree.tokens[node]);
  }
  outcome.judged.push_back(judged);
  const TokenDraw draw = DrawToken(input, branch.row, branch.depth);
  const int32_t drawn = branch.row.IdAt(draw.index);
  const auto child = std::find_if(branch.children.begin(), branch.children.end(),
                                  [&](int32_t node) { return tree.tokens[node] == drawn; });
  const bool accepted = child != branch.children.end();
  // Of those that were refused the first stands for all.
  const int32_t shown = accepted ? *child : branch.children.front();
  const bool single = branch.draft.rows().size() == 1 && branch.draft.row().vocab_size() > 0;
  const double draft_prob = branch.draft.deterministic() ? 1.0
                            : single ? branch.draft.row().Prob(tree.tokens[shown])
                                     : kNoNumber;
  TraceChild(input, branch, shown, draft_prob, draw.uniform,
             accepted ? Decision::kAccepted : Decision::kRejected, outcome);
  if (accepted) return shown;
  EmitToken(input, branch.row, branch.depth, drawn, draw.uniform, Decision::kRecovered, outcome);
  return -1;
}

template <typename Real>
int32_t JudgeByCoin(const RuleInput<Real>& input, const Branch<Real>& branch, double accept_prob,
                    double draft_prob, VerifyOutcome& outcome) {
  const int32_t child = branch.child();
  const CoinFlip flip =
      input.randomness.Coin(AcceptNoise(input, child, branch.depth), accept_prob, draft_prob);
  TraceChild(input, branch, child, draft_prob, flip.uniform,
             flip.accepted ? Decision::kAccepted : Decision::kRejected, outcome);
  if (flip.accepted) return child;
  WorkingRow<Real> left(branch.row, input.memory);
  SubtractDraft(input, branch, 1.0, left);
  EmitLeft(input, branch.row, left, branch.depth, outcome);
  return -1;
}

template int32_t JudgeByCoin(const RuleInput<float>&, const Branch<float>&, double, double,
                             VerifyOutcome&);
template int32_t JudgeByCoin(const RuleInput<double>&, const Branch<double>&, double, double,
                             VerifyOutcome&);
template int32_t JudgeByDraw(const RuleInput<float>&, const Branch<float>&, VerifyOutcome&);
template int32_t JudgeByDraw(const RuleInput<double>&, const Branch<double>&, VerifyOutcome&);

}  // namespace paceline
