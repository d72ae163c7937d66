#include "sampling/proposal.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

// What draft_rows[index], the children of one node, lacks; OK if nothing.
template <typename Real>
absl::Status CheckRows(const ProposalDist<Real>& draft, const NodeList& children,
                       size_t index, int32_t vocab_size) {
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat("draft_rows[", index, "]: expected ", parts...));
  };
  const size_t num_children = children.size();
  const bool needs_row = draft.kind() != ProposalDist<Real>::Kind::kCertainFirst ||
                         num_children > static_cast<size_t>(draft.num_certain());
  for (const Distribution<Real>& row : draft.rows()) {
    if (needs_row && row.vocab_size() != vocab_size) {
      return error(vocab_size, " entries, got ", row.vocab_size());
    }
  }
  if (draft.kind() == ProposalDist<Real>::Kind::kCertainFirst) {
    const auto certain = static_cast<size_t>(std::max(draft.num_certain(), 0));
    if (num_children == certain || num_children == certain + 1) return absl::OkStatus();
    return error(certain, " certain children and at most one drawn, got ", num_children);
  }
  if (draft.kind() != ProposalDist<Real>::Kind::kIndependent) return absl::OkStatus();
  if (draft.rows().size() != 1 && draft.rows().size() != draft.draws().size()) {
    return error("one row, or one for each of ", draft.draws().size(), " draws, got ",
                 draft.rows().size());
  }
  const std::set<int32_t> drawn(draft.draws().begin(), draft.draws().end());
  if (drawn == std::set<int32_t>(children.begin(), children.end())) return absl::OkStatus();
  return error("draws of each of the ", num_children, " children and of nothing else");
}

}  // namespace

template <typename Real>
size_t Proposal<Real>::IndexOf(int32_t node) const {
  if (tree.IsChain()) return node + 1;
  return tree.NumExpandedBefore(node);
}

template <typename Real>
bool Proposal<Real>::deterministic() const {
  return std::all_of(draft_rows.begin(), draft_rows.end(),
                     [](const auto& row) { return row.deterministic(); });
}

template <typename Real>
Proposal<Real> Proposal<Real>::Deterministic(TokenTree tree) {
  Proposal proposal;
  proposal.draft_rows.resize(tree.NumExpandedBefore(tree.size()),
                             ProposalDist<Real>::Deterministic());
  proposal.tree = std::move(tree);
  return proposal;
}

template <typename Real>
absl::Status Proposal<Real>::Validate(int32_t vocab_size) const {
  PACELINE_RETURN_IF_ERROR(tree.Validate(vocab_size));
  const size_t expected = tree.NumExpandedBefore(tree.size());
  if (draft_rows.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "draft_rows: expected ", expected, " rows, one an expanded node, got ", draft_rows.size()));
  }
  size_t index = 0;
  for (int32_t node = -1; node < tree.size(); ++node) {
    const NodeList children = tree.Children(node);
    if (children.empty()) continue;
    PACELINE_RETURN_IF_ERROR(CheckRows(draft_rows[index], children, index, vocab_size));
    ++index;
  }
  return absl::OkStatus();
}

template struct Proposal<float>;
template struct Proposal<double>;

}  // namespace paceline
