#include "verify/chain.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// (scale * row - q)+, where q of a deterministic draft is one-hot.
template <typename Real>
WeightedTokens Residual(const RuleInput<Real>& input, double scale, const Distribution<Real>& row,
                        int32_t depth) {
  const ProposalDist<Real>& draft = input.proposal.RowOf(depth - 1);
  if (!draft.deterministic()) return row.ScaledResidual(scale, draft.row());
  const int32_t token = input.proposal.tree.tokens[depth];
  return row.ScaledResidual(scale, Distribution<Real>::OneHot(token, row.vocab_size()));
}

}  // namespace

absl::Status CheckChain(const TokenTree& tree, std::string_view rule) {
  if (tree.IsChain()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("proposal: rule `", std::string(rule),
                                                 "` expects a chain, got a tree; `match` takes "
                                                 "trees"));
}

template <typename Real>
absl::StatusOr<double> DraftProbAt(const RuleInput<Real>& input, int32_t depth) {
  const ProposalDist<Real>& draft = input.proposal.RowOf(depth - 1);
  if (draft.deterministic()) return 1.0;
  const int32_t token = input.proposal.tree.tokens[depth];
  const double draft_prob = draft.row().Prob(token);
  if (draft_prob > 0) return draft_prob;
  return absl::InvalidArgumentError(absl::StrCat(
      "draft_rows[", depth, "]: expected a positive probability of the drafted token ", token,
      ", got ", draft_prob, ": not the row it was drawn from"));
}

template <typename Real>
JudgedRow JudgeRow(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth) {
  const ProposalDist<Real>& draft = input.proposal.RowOf(depth - 1);
  if (draft.deterministic()) return {row.Prob(input.proposal.tree.tokens[depth])};
  const Divergence divergence = row.DivergenceFrom(draft.row());
  return {divergence.overlap, divergence.total_variation, divergence.kl};
}

template <typename Real>
void EmitToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
               int32_t token, double uniform, Decision decision, VerifyOutcome& outcome) {
  outcome.next_token = token;
  outcome.trace.push_back(
      {input.position + depth, -1, token, row.Prob(token), kNoNumber, uniform, decision});
}

template <typename Real>
void EmitDraw(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
              Decision decision, VerifyOutcome& outcome) {
  const TokenDraw draw = input.randomness.Draw(TokenNoise(input, depth), row.probs());
  EmitToken(input, row, depth, row.IdAt(draw.index), draw.uniform, decision, outcome);
}

template <typename Real>
void EmitResidual(const RuleInput<Real>& input, double scale, const Distribution<Real>& row,
                  int32_t depth, VerifyOutcome& outcome) {
  const WeightedTokens residual = Residual(input, scale, row, depth);
  if (!(residual.total > 0)) return EmitDraw(input, row, depth, Decision::kRecovered, outcome);
  const TokenDraw draw =
      input.randomness.Draw(TokenNoise(input, depth), std::span<const double>(residual.weights));
  EmitToken(input, row, depth, residual.ids[draw.index], draw.uniform, Decision::kRecovered, outcome);
}

template <typename Real>
double ResidualMass(const RuleInput<Real>& input, double scale, const Distribution<Real>& row,
                    int32_t depth) {
  return Residual(input, scale, row, depth).total;
}

#define PACELINE_INSTANTIATE(Real)                                                               \
  template absl::StatusOr<double> DraftProbAt(const RuleInput<Real>&, int32_t);                  \
  template JudgedRow JudgeRow(const RuleInput<Real>&, const Distribution<Real>&, int32_t);       \
  template void EmitToken(const RuleInput<Real>&, const Distribution<Real>&, int32_t, int32_t,   \
                          double, Decision, VerifyOutcome&);                                     \
  template void EmitDraw(const RuleInput<Real>&, const Distribution<Real>&, int32_t, Decision,   \
                         VerifyOutcome&);                                                        \
  template void EmitResidual(const RuleInput<Real>&, double, const Distribution<Real>&, int32_t, \
                             VerifyOutcome&);                                                    \
  template double ResidualMass(const RuleInput<Real>&, double, const Distribution<Real>&, int32_t);

PACELINE_INSTANTIATE(float)
PACELINE_INSTANTIATE(double)
#undef PACELINE_INSTANTIATE

}  // namespace paceline
