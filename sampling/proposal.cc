#include "sampling/proposal.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

std::set<int32_t> ExpandedNodes(const TokenTree& tree) {
  return {tree.parents.begin(), tree.parents.end()};
}

}  // namespace

template <typename Real>
const ProposalDist<Real>& Proposal<Real>::RowOf(int32_t node) const {
  if (tree.IsChain()) return draft_rows[node + 1];
  const std::set<int32_t> expanded = ExpandedNodes(tree);
  return draft_rows[std::distance(expanded.begin(), expanded.find(node))];
}

template <typename Real>
bool Proposal<Real>::deterministic() const {
  return std::all_of(draft_rows.begin(), draft_rows.end(),
                     [](const auto& row) { return row.deterministic(); });
}

template <typename Real>
Proposal<Real> Proposal<Real>::Deterministic(TokenTree tree) {
  Proposal proposal;
  proposal.draft_rows.resize(ExpandedNodes(tree).size(), ProposalDist<Real>::Deterministic());
  proposal.tree = std::move(tree);
  return proposal;
}

template <typename Real>
absl::Status Proposal<Real>::Validate(int32_t vocab_size) const {
  PACELINE_RETURN_IF_ERROR(tree.Validate(vocab_size));
  const size_t expected = ExpandedNodes(tree).size();
  if (draft_rows.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "draft_rows: expected ", expected, " rows, one an expanded node, got ", draft_rows.size()));
  }
  for (size_t i = 0; i < draft_rows.size(); ++i) {
    if (!draft_rows[i].deterministic() && draft_rows[i].row().vocab_size() != vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("draft_rows[", i, "]: expected ", vocab_size,
                                                     " entries, got ",
                                                     draft_rows[i].row().vocab_size()));
    }
  }
  return absl::OkStatus();
}

template struct Proposal<float>;
template struct Proposal<double>;

}  // namespace paceline
