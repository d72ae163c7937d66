#include "verify/match.h"

#include "base/status_macros.h"

namespace paceline {
namespace {

struct Pick {
  int32_t token;
  double uniform = kNoNumber;
};

template <typename Real>
Pick DrawFrom(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth) {
  const TokenDraw draw = input.randomness.Draw(TokenNoise(input, depth), row.probs());
  return {row.IdAt(draw.index), draw.uniform};
}

// Child of `node` that holds `token`, else -1.
int32_t ChildHolding(const TokenTree& tree, const std::vector<int32_t>& children, int32_t token) {
  for (int32_t child : children) {
    if (tree.tokens[child] == token) return child;
  }
  return -1;
}

template <typename Real>
JudgedRow Judge(const TokenTree& tree, const std::vector<int32_t>& children,
                const Distribution<Real>& row) {
  JudgedRow judged{0};
  for (int32_t child : children) judged.expected_acceptance += row.Prob(tree.tokens[child]);
  return judged;
}

template <typename Real>
double DraftProb(const Proposal<Real>& proposal, int32_t parent, int32_t token) {
  const auto& dist = proposal.RowOf(parent);
  return dist.deterministic() ? 1.0 : dist.row().Prob(token);
}

template <typename Real, typename PickToken>
absl::StatusOr<VerifyOutcome> Walk(const RuleInput<Real>& input, PickToken pick_token) {
  const TokenTree& tree = input.proposal.tree;
  VerifyOutcome outcome;
  for (int32_t node = -1, depth = 0;; ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(node));
    const Pick pick = pick_token(*row, depth);
    const std::vector<int32_t> children = tree.Children(node);
    if (!children.empty()) outcome.judged.push_back(Judge(tree, children, *row));
    const int32_t child = ChildHolding(tree, children, pick.token);
    // The judged child is the accepted one, or the first of those that were refused.
    if (!children.empty()) {
      const int32_t shown = child >= 0 ? child : children.front();
      const int32_t token = tree.tokens[shown];
      outcome.trace.push_back({input.position + depth, shown, token, row->Prob(token),
                               DraftProb(input.proposal, node, token), pick.uniform,
                               child >= 0 ? Decision::kAccepted : Decision::kRejected});
    }
    if (child < 0) {
      outcome.next_token = pick.token;
      outcome.trace.push_back({input.position + depth, -1, pick.token, row->Prob(pick.token),
                               kNoNumber, pick.uniform,
                               children.empty() ? FinalDecision(input) : Decision::kRecovered});
      return outcome;
    }
    outcome.path.push_back(child);
    node = child;
  }
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<Real>& input) {
  return Walk(input, [&](const Distribution<Real>& row, int32_t depth) {
    return DrawFrom(input, row, depth);
  });
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<Real>& input) {
  return Walk(input, [](const Distribution<Real>& row, int32_t) { return Pick{row.Argmax()}; });
}

template absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<double>&);
template absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<double>&);

}  // namespace paceline
