#include "verify/traversal.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "verify/walk.h"

namespace paceline {
namespace {

// One traversal: what the visited nodes decided.
template <typename Real>
class Traversal {
 public:
  explicit Traversal(const RuleInput<Real>& input)
      : input_(input),
        uniforms_(input.proposal.tree.size(), kNoNumber),
        outcome_(StartOutcome(input)) {}

  // True if `node` (-1: the root) or a node below it was accepted: the outcome is then complete.
  // `kept` is R, the probability that the path up to here is still to be accepted.
  absl::StatusOr<bool> Visit(int32_t node, int32_t depth, double kept) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input_.rows.Row(node));
    WorkingRow<Real> left(*row, input_.memory);
    if (input_.proposal.tree.HasChildren(node)) {
      PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input_, node, depth));
      PACELINE_ASSIGN_OR_RETURN(const bool accepted, VisitChildren(branch, kept, left));
      if (accepted) return true;
    }
    if (node >= 0) {
      const NoiseAddress noise = AcceptNoise(input_, node, depth - 1);
      const CoinFlip flip = input_.randomness.Coin(noise, kept, 1.0);
      uniforms_[node] = flip.uniform;
      if (!flip.accepted) return false;
    }
    PACELINE_RETURN_IF_ERROR(Report(node));
    if (input_.proposal.tree.HasChildren(node)) {
      EmitLeft(input_, *row, left, depth, outcome_);
    } else {
      EmitDraw(input_, *row, depth, FinalDecision(input_), outcome_);
    }
    return true;
  }

  VerifyOutcome TakeOutcome() { return std::move(outcome_); }

 private:
  // Visits the children of a branch in draw order. `kept` and `left` become those of its node once
  // all of them were refused.
  absl::StatusOr<bool> VisitChildren(const Branch<Real>& branch, double& kept,
                                     WorkingRow<Real>& left) {
    const bool single = branch.draft.deterministic() && branch.children.size() == 1;
    if (!single && branch.draft.kind() != ProposalDist<Real>::Kind::kWithoutReplacement) {
      return UnfitDraws("traversal", "children drawn without replacement", branch.node);
    }
    // The draft row of a picked child is one-hot: `draft` is then not read.
    WorkingRow<Real> draft(single ? branch.row : branch.draft.row(), input_.memory);
    for (const int32_t child : branch.children) {
      const int32_t token = input_.proposal.tree.tokens[child];
      PACELINE_RETURN_IF_ERROR(DraftProbOf(input_, branch, child).status());
      const double draft_prob = single ? 1.0 : draft.Prob(token);
      const double child_kept = std::min(1.0, kept * left.Prob(token) / draft_prob);
      if (child_kept > 0) {
        PACELINE_ASSIGN_OR_RETURN(const bool accepted, Visit(child, branch.depth + 1, child_kept));
        if (accepted) return true;
      }
      const double mass =
          single ? left.SubtractOneHot(kept, token) : left.Subtract(kept, draft);
      const double denominator = mass + 1 - kept;
      if (branch.node >= 0) kept = denominator > 0 ? mass / denominator : 0;
      if (child != branch.children.back()) draft.Remove(token);
    }
    return false;
  }

  // Trace and judged rows of the path to `last`, and of its children, which were refused.
  absl::Status Report(int32_t last) {
    for (int32_t node = last; node >= 0; node = input_.proposal.tree.parents[node]) {
      outcome_.path.push_back(node);
    }
    std::reverse(outcome_.path.begin(), outcome_.path.end());
    int32_t parent = -1;
    for (size_t depth = 0; depth < outcome_.path.size(); ++depth) {
      const int32_t accepted = outcome_.path[depth];
      PACELINE_RETURN_IF_ERROR(ReportBranch(parent, static_cast<int32_t>(depth), accepted));
      parent = accepted;
    }
    if (!input_.proposal.tree.HasChildren(last)) return absl::OkStatus();
    return ReportBranch(last, static_cast<int32_t>(outcome_.path.size()), -1);
  }

  absl::Status ReportBranch(int32_t node, int32_t depth, int32_t accepted) {
    PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input_, node, depth));
    outcome_.judged.push_back(JudgeRow(input_, branch));
    for (const int32_t child : branch.children) {
      PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input_, branch, child));
      const bool is_accepted = child == accepted;
      TraceChild(input_, branch, child, draft_prob, uniforms_[child],
                 is_accepted ? Decision::kAccepted : Decision::kRejected, outcome_);
      if (is_accepted) break;
    }
    return absl::OkStatus();
  }

  const RuleInput<Real>& input_;
  absl::InlinedVector<double, 64> uniforms_;  // Coin of each node that was judged.
  VerifyOutcome outcome_;
};

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyTraversal(const RuleInput<Real>& input) {
  Traversal<Real> traversal(input);
  PACELINE_RETURN_IF_ERROR(traversal.Visit(-1, 0, 1.0).status());
  return traversal.TakeOutcome();
}

template absl::StatusOr<VerifyOutcome> VerifyTraversal(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyTraversal(const RuleInput<double>&);

}  // namespace paceline
