#include "verify/standard.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

// The emitted token of a position and its place in the trace.
template <typename Real>
void Emit(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth, int32_t token,
          double uniform, Decision decision, VerifyOutcome& outcome) {
  outcome.next_token = token;
  outcome.trace.push_back(
      {input.position + depth, -1, token, row.Prob(token), kNoNumber, uniform, decision});
}

template <typename Real>
void EmitDraw(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
              Decision decision, VerifyOutcome& outcome) {
  const TokenDraw draw = input.randomness.Draw(TokenNoise(input, depth), row.probs());
  Emit(input, row, depth, row.IdAt(draw.index), draw.uniform, decision, outcome);
}

template <typename Real>
void EmitResidual(const RuleInput<Real>& input, const Distribution<Real>& row,
                  const Distribution<Real>& draft_row, int32_t depth, VerifyOutcome& outcome) {
  const WeightedTokens residual = row.ScaledResidual(1.0, draft_row);
  if (!(residual.total > 0)) {
    return EmitDraw(input, row, depth, Decision::kRecovered, outcome);
  }
  const TokenDraw draw =
      input.randomness.Draw(TokenNoise(input, depth), std::span<const double>(residual.weights));
  Emit(input, row, depth, residual.ids[draw.index], draw.uniform, Decision::kRecovered, outcome);
}

// Judges the drafted token at `depth` (tree node `depth`). True if it was accepted; otherwise the
// round's last token has been emitted.
template <typename Real>
bool JudgeDeterministic(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
                        VerifyOutcome& outcome) {
  const int32_t drafted = input.proposal.tree.tokens[depth];
  const TokenDraw draw = input.randomness.Draw(TokenNoise(input, depth), row.probs());
  const int32_t drawn = row.IdAt(draw.index);
  const bool accepted = drawn == drafted;
  const double target_prob = row.Prob(drafted);
  outcome.judged.push_back({target_prob});
  outcome.trace.push_back({input.position + depth, depth, drafted, target_prob, 1.0, draw.uniform,
                           accepted ? Decision::kAccepted : Decision::kRejected});
  if (!accepted) {
    Emit(input, row, depth, drawn, draw.uniform, Decision::kRecovered, outcome);
  }
  return accepted;
}

template <typename Real>
absl::StatusOr<bool> JudgeSampled(const RuleInput<Real>& input, const Distribution<Real>& row,
                                  const Distribution<Real>& draft_row, int32_t depth,
                                  VerifyOutcome& outcome) {
  const int32_t drafted = input.proposal.tree.tokens[depth];
  const double target_prob = row.Prob(drafted);
  const double draft_prob = draft_row.Prob(drafted);
  if (!(draft_prob > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "draft_rows[", depth, "]: expected a positive probability of the drafted token ", drafted,
        ", got ", draft_prob, ": not the row it was drawn from"));
  }
  const NoiseAddress coin{input.position + static_cast<uint32_t>(depth), Purpose::kAccept,
                          static_cast<uint8_t>(depth), 0};
  const CoinFlip flip = input.randomness.Coin(coin, target_prob, draft_prob);
  const Divergence divergence = row.DivergenceFrom(draft_row);
  outcome.judged.push_back({divergence.overlap, divergence.total_variation, divergence.kl});
  outcome.trace.push_back({input.position + depth, depth, drafted, target_prob, draft_prob,
                           flip.uniform,
                           flip.accepted ? Decision::kAccepted : Decision::kRejected});
  if (!flip.accepted) EmitResidual(input, row, draft_row, depth, outcome);
  return flip.accepted;
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<Real>& input) {
  const TokenTree& tree = input.proposal.tree;
  if (!tree.IsChain()) {
    return absl::InvalidArgumentError(
        "proposal: rule `standard` expects a chain, got a tree; `match` "
        "takes trees");
  }
  VerifyOutcome outcome;
  for (int32_t depth = 0; depth < tree.size(); ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(depth - 1));
    const ProposalDist<Real>& draft = input.proposal.RowOf(depth - 1);
    bool accepted = false;
    if (draft.deterministic()) {
      accepted = JudgeDeterministic(input, *row, depth, outcome);
    } else {
      PACELINE_ASSIGN_OR_RETURN(accepted, JudgeSampled(input, *row, draft.row(), depth, outcome));
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
