#include "verify/sampled_first.h"

#include <algorithm>

#include "verify/walk.h"

namespace paceline {
namespace {

// Number of picked children, which come first; the one behind them was drawn. -1 if the children were
// chosen otherwise.
template <typename Real>
int32_t NumCertain(const Branch<Real>& branch) {
  using Kind = typename ProposalDist<Real>::Kind;
  if (branch.draft.kind() == Kind::kCertainFirst) return branch.draft.num_certain();
  const bool one_drawn =
      branch.draft.kind() == Kind::kWithoutReplacement && branch.children.size() == 1;
  return one_drawn ? 0 : -1;
}

// Draws from what the sampled candidate left; a child that holds the token is accepted.
template <typename Real>
int32_t JudgeByLeft(const RuleInput<Real>& input, const Branch<Real>& branch,
                    const WorkingRow<Real>& left, VerifyOutcome& outcome) {
  const TokenDraw draw = left.Weights([&](auto weights) {
    return input.randomness.Draw(TokenNoise(input, branch.depth), weights, branch.row.ids());
  });
  const int32_t drawn = branch.row.IdAt(draw.index);
  for (const int32_t child : branch.children) {
    if (input.proposal.tree.tokens[child] != drawn) continue;
    TraceChild(input, branch, child, 1.0, draw.uniform, Decision::kAccepted, outcome);
    return child;
  }
  EmitToken(input, branch.row, branch.depth, drawn, draw.uniform, Decision::kRecovered, outcome);
  return -1;
}

template <typename Real>
absl::StatusOr<int32_t> JudgeCandidates(const RuleInput<Real>& input, const Branch<Real>& branch,
                                        VerifyOutcome& outcome) {
  const int32_t num_certain = NumCertain(branch);
  if (num_certain < 0) {
    return UnfitDraws("sampled-first", "picked candidates and one drawn behind them", branch.node);
  }
  outcome.judged.push_back(JudgeRow(input, branch));
  WorkingRow<Real> left(branch.row, input.memory);
  if (static_cast<size_t>(num_certain) < branch.children.size()) {
    const int32_t sampled = branch.children.back();
    PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input, branch, sampled));
    const double target_prob = branch.row.Prob(input.proposal.tree.tokens[sampled]);
    const NoiseAddress noise = AcceptNoise(input, sampled, branch.depth);
    const CoinFlip flip = input.randomness.Coin(noise, target_prob, draft_prob);
    TraceChild(input, branch, sampled, draft_prob, flip.uniform,
               flip.accepted ? Decision::kAccepted : Decision::kRejected, outcome);
    if (flip.accepted) return sampled;
    left.Subtract(1.0, branch.draft.row());
  }
  return JudgeByLeft(input, branch, left, outcome);
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifySampledFirst(const RuleInput<Real>& input) {
  return WalkTree(input, [&](const Branch<Real>& branch, VerifyOutcome& outcome) {
    return JudgeCandidates(input, branch, outcome);
  });
}

template absl::StatusOr<VerifyOutcome> VerifySampledFirst(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifySampledFirst(const RuleInput<double>&);

}  // namespace paceline
