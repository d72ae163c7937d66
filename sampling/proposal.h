// What a drafter hands over: drafted tokens and the rows they were drawn from.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/token_tree.h"
#include "sampling/distribution.h"

namespace paceline {

// The proposal distribution of one expanded node: the row its children were really drawn from,
// after every change, or nothing where they were picked by a deterministic choice (argmax, lookup).
template <typename Real>
class ProposalDist {
 public:
  // Children were picked, not drawn: q is one-hot at each.
  static ProposalDist Deterministic() { return ProposalDist(); }
  // Children were drawn from `row`.
  static ProposalDist Sampled(Distribution<Real> row) {
    ProposalDist dist;
    dist.deterministic_ = false;
    dist.row_ = std::move(row);
    return dist;
  }

  bool deterministic() const { return deterministic_; }
  const Distribution<Real>& row() const { return row_; }  // Empty if deterministic.

 private:
  bool deterministic_ = true;
  Distribution<Real> row_;
};

// A drafted tree. `draft_rows` has one entry for every expanded node (a node that has children) in
// node order, the root first, none for leaves. In a chain entry i is the row of token i.
template <typename Real>
struct Proposal {
  TokenTree tree;
  std::vector<ProposalDist<Real>> draft_rows;

  // The row that the children of `node` (-1: the root) were drawn from; `node` must be expanded.
  const ProposalDist<Real>& RowOf(int32_t node) const;

  // True if no token was drawn from a row.
  bool deterministic() const;

  // A proposal whose tokens were all picked.
  static Proposal Deterministic(TokenTree tree);

  // kInvalidArgument unless the tree is sound, there is one row for every expanded node, and rows
  // have `vocab_size` entries.
  absl::Status Validate(int32_t vocab_size) const;
};

extern template struct Proposal<float>;
extern template struct Proposal<double>;

}  // namespace paceline
