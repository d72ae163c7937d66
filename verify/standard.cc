#include "verify/standard.h"

#include "base/status_macros.h"
#include "verify/chain.h"

namespace paceline {
namespace {

// Each judges the drafted token at `depth` (tree node `depth`). True if it was accepted; otherwise
// the round's last token has been emitted.
template <typename Real>
bool JudgeDeterministic(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
                        VerifyOutcome& outcome) {
  const int32_t drafted = input.proposal.tree.tokens[depth];
  const TokenDraw draw = input.randomness.Draw(TokenNoise(input, depth), row.probs());
  const int32_t drawn = row.IdAt(draw.index);
  const bool accepted = drawn == drafted;
  outcome.judged.push_back(JudgeRow(input, row, depth));
  outcome.trace.push_back({input.position + depth, depth, drafted, row.Prob(drafted), 1.0,
                           draw.uniform, accepted ? Decision::kAccepted : Decision::kRejected});
  if (!accepted) {
    EmitToken(input, row, depth, drawn, draw.uniform, Decision::kRecovered, outcome);
  }
  return accepted;
}

template <typename Real>
absl::StatusOr<bool> JudgeSampled(const RuleInput<Real>& input, const Distribution<Real>& row,
                                  int32_t depth, VerifyOutcome& outcome) {
  const int32_t drafted = input.proposal.tree.tokens[depth];
  const double target_prob = row.Prob(drafted);
  PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbAt(input, depth));
  const CoinFlip flip =
      input.randomness.Coin(AcceptNoise(input, depth), target_prob, draft_prob);
  outcome.judged.push_back(JudgeRow(input, row, depth));
  outcome.trace.push_back({input.position + depth, depth, drafted, target_prob, draft_prob,
                           flip.uniform,
                           flip.accepted ? Decision::kAccepted : Decision::kRejected});
  if (!flip.accepted) EmitResidual(input, 1.0, row, depth, outcome);
  return flip.accepted;
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<Real>& input) {
  const TokenTree& tree = input.proposal.tree;
  PACELINE_RETURN_IF_ERROR(CheckChain(tree, "standard"));
  VerifyOutcome outcome;
  for (int32_t depth = 0; depth < tree.size(); ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(depth - 1));
    bool accepted = false;
    if (input.proposal.RowOf(depth - 1).deterministic()) {
      accepted = JudgeDeterministic(input, *row, depth, outcome);
    } else {
      PACELINE_ASSIGN_OR_RETURN(accepted, JudgeSampled(input, *row, depth, outcome));
    }
    if (!accepted) return outcome;
    outcome.path.push_back(depth);
  }
  PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(tree.size() - 1));
  EmitDraw(input, *row, tree.size(), FinalDecision(input), outcome);
  return outcome;
}

template absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<double>&);

}  // namespace paceline
