#include "verify/judge.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {

template <typename Real>
absl::StatusOr<Branch<Real>> BranchAt(const RuleInput<Real>& input, int32_t node, int32_t depth) {
  PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(node));
  return Branch<Real>{node, depth, input.proposal.tree.Children(node), *row,
                      input.proposal.RowOf(node)};
}

template <typename Real>
absl::Status CheckChain(const Proposal<Real>& proposal, std::string_view rule) {
  if (!proposal.tree.IsChain()) {
    return absl::InvalidArgumentError(absl::StrCat("proposal: rule `", std::string(rule),
                                                   "` expects a chain, got a tree; `walk` takes "
                                                   "any tree, `rrs` and `traversal` sampled ones"));
  }
  for (int32_t i = 0; i < proposal.tree.size(); ++i) {
    if (proposal.draft_rows[i].kind() == ProposalDist<Real>::Kind::kCertainFirst) {
      return UnfitDraws(rule, "a picked or a drawn token", i - 1);
    }
  }
  return absl::OkStatus();
}

absl::Status UnfitDraws(std::string_view rule, std::string_view expected, int32_t node) {
  return absl::InvalidArgumentError(
      absl::StrCat("proposal: rule `", std::string(rule), "` expects ", std::string(expected),
                   ", got children of node ", node, " that were chosen otherwise; `walk` takes any"));
}

template <typename Real>
NoiseAddress AcceptNoise(const RuleInput<Real>& input, int32_t child, int32_t depth) {
  const auto node = static_cast<uint16_t>(input.proposal.tree.IsChain() ? 0 : child + 1);
  return {input.position + static_cast<uint32_t>(depth), Purpose::kAccept,
          static_cast<uint8_t>(depth), node};
}

template <typename Real>
absl::StatusOr<double> DraftProbOf(const RuleInput<Real>& input, const Branch<Real>& branch,
                                   int32_t child, size_t draw) {
  if (branch.draft.deterministic()) return 1.0;
  const int32_t token = input.proposal.tree.tokens[child];
  const double draft_prob = branch.draft.row(draw).Prob(token);
  if (draft_prob > 0) return draft_prob;
  return absl::InvalidArgumentError(absl::StrCat(
      "draft_rows[", input.proposal.IndexOf(branch.node),
      "]: expected a positive probability of the drafted token ", token, ", got ", draft_prob,
      ": not the row it was drawn from"));
}

template <typename Real>
JudgedRow JudgeRow(const RuleInput<Real>& input, const Branch<Real>& branch) {
  if (!input.figures && !branch.draft.deterministic()) return {};
  JudgedRow judged{0};
  const bool certain = branch.draft.kind() == ProposalDist<Real>::Kind::kCertainFirst;
  const size_t num_picked = branch.draft.deterministic() ? branch.children.size()
                            : certain                    ? branch.draft.num_certain()
                                                         : 0;
  for (size_t i = 0; i < num_picked; ++i) {
    judged.expected_acceptance += branch.row.Prob(input.proposal.tree.tokens[branch.children[i]]);
  }
  if (num_picked == branch.children.size()) return judged;
  const Divergence divergence = branch.row.DivergenceFrom(branch.draft.row());
  return {judged.expected_acceptance + divergence.overlap, divergence.total_variation,
          divergence.kl};
}

template <typename Real>
void TraceChild(const RuleInput<Real>& input, const Branch<Real>& branch, int32_t child,
                double draft_prob, double uniform, Decision decision, VerifyOutcome& outcome) {
  const int32_t token = input.proposal.tree.tokens[child];
  outcome.trace.push_back({input.position + branch.depth, child, token, branch.row.Prob(token),
                           draft_prob, uniform, decision});
}

template <typename Real>
void EmitToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
               int32_t token, double uniform, Decision decision, VerifyOutcome& outcome) {
  outcome.next_token = token;
  outcome.trace.push_back(
      {input.position + depth, -1, token, row.Prob(token), kNoNumber, uniform, decision});
}

template <typename Real>
TokenDraw DrawToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth) {
  return input.randomness.Draw(TokenNoise(input, depth), row.probs(), row.ids());
}

template <typename Real>
void EmitDraw(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
              Decision decision, VerifyOutcome& outcome) {
  const TokenDraw draw = DrawToken(input, row, depth);
  EmitToken(input, row, depth, row.IdAt(draw.index), draw.uniform, decision, outcome);
}

template <typename Real>
void EmitLeft(const RuleInput<Real>& input, const Distribution<Real>& row,
              const WorkingRow<Real>& left, int32_t depth, VerifyOutcome& outcome) {
  const TokenDraw draw = left.Weights([&](auto weights) {
    return input.randomness.Draw(TokenNoise(input, depth), weights, row.ids());
  });
  EmitToken(input, row, depth, row.IdAt(draw.index), draw.uniform, Decision::kRecovered, outcome);
}

template <typename Real>
double SubtractDraft(const RuleInput<Real>& input, const Branch<Real>& branch, double scale,
                     WorkingRow<Real>& left) {
  if (!branch.draft.deterministic()) return left.Subtract(scale, branch.draft.row());
  return left.SubtractOneHot(scale, input.proposal.tree.tokens[branch.child()]);
}

#define PACELINE_INSTANTIATE(Real)                                                                \
  template absl::StatusOr<Branch<Real>> BranchAt(const RuleInput<Real>&, int32_t, int32_t);       \
  template absl::Status CheckChain(const Proposal<Real>&, std::string_view);                      \
  template NoiseAddress AcceptNoise(const RuleInput<Real>&, int32_t, int32_t);                    \
  template absl::StatusOr<double> DraftProbOf(const RuleInput<Real>&, const Branch<Real>&,        \
                                              int32_t, size_t);                                   \
  template JudgedRow JudgeRow(const RuleInput<Real>&, const Branch<Real>&);                       \
  template void TraceChild(const RuleInput<Real>&, const Branch<Real>&, int32_t, double, double,  \
                           Decision, VerifyOutcome&);                                             \
  template void EmitToken(const RuleInput<Real>&, const Distribution<Real>&, int32_t, int32_t,    \
                          double, Decision, VerifyOutcome&);                                      \
  template TokenDraw DrawToken(const RuleInput<Real>&, const Distribution<Real>&, int32_t);       \
  template void EmitDraw(const RuleInput<Real>&, const Distribution<Real>&, int32_t, Decision,    \
                         VerifyOutcome&);                                                         \
  template void EmitLeft(const RuleInput<Real>&, const Distribution<Real>&,                       \
                         const WorkingRow<Real>&, int32_t, VerifyOutcome&);                       \
  template double SubtractDraft(const RuleInput<Real>&, const Branch<Real>&, double,              \
                                WorkingRow<Real>&);

PACELINE_INSTANTIATE(float)
PACELINE_INSTANTIATE(double)
#undef PACELINE_INSTANTIATE

}  // namespace paceline
