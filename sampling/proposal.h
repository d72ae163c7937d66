// What a drafter hands over: drafted tokens and the rows they were drawn from.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "base/token_tree.h"
#include "sampling/distribution.h"

namespace paceline {

// How the children of one expanded node were chosen, and the rows they were really drawn from, after
// every change: temperature, filters, mask, reduced vocabulary, argmax (algorithms B.5).
template <typename Real>
class ProposalDist {
 public:
  enum class Kind {
    kPicked,              // A function of the prefix (argmax, lookup, top-k): q is one-hot at each.
    kWithoutReplacement,  // Child j drawn from the row with the children before it zeroed.
    kIndependent,         // Draws that do not know of each other; the same token may come again.
    kCertainFirst,        // The first children picked, the one behind them, if any, drawn.
  };

  static ProposalDist Deterministic() { return ProposalDist(Kind::kPicked); }

  // Children drawn from `row` in node order: one, or several without replacement.
  static ProposalDist Sampled(Distribution<Real> row) {
    ProposalDist dist(Kind::kWithoutReplacement);
    dist.rows_.push_back(std::move(row));
    return dist;
  }

  // draws[j] is the child that the j-th draw gave, a node of the tree. A token that came again names
  // the child it made first, since siblings are distinct. One row for all draws (with replacement),
  // or one for each (a candidate from each of several drafters).
  static ProposalDist Independent(std::vector<Distribution<Real>> rows,
                                  std::vector<int32_t> draws) {
    ProposalDist dist(Kind::kIndependent);
    dist.rows_.assign(std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
    dist.draws_ = std::move(draws);
    return dist;
  }

  // The first `num_certain` children were picked. If there is one more it was drawn from `row`, which
  // may be empty if there is not.
  static ProposalDist CertainFirst(int32_t num_certain, Distribution<Real> row) {
    ProposalDist dist(Kind::kCertainFirst);
    dist.rows_.push_back(std::move(row));
    dist.num_certain_ = num_certain;
    return dist;
  }

  Kind kind() const { return kind_; }
  bool deterministic() const { return kind_ == Kind::kPicked; }
  // The row of the first draw, and of the j-th. Not for picked children.
  const Distribution<Real>& row() const { return rows_.front(); }
  const Distribution<Real>& row(size_t draw) const {
    return rows_[rows_.size() == 1 ? 0 : draw];
  }
  std::span<const Distribution<Real>> rows() const { return rows_; }
  std::span<const int32_t> draws() const { return draws_; }  // kIndependent only.
  int32_t num_certain() const { return num_certain_; }       // kCertainFirst only.

  // The row of the first draw, to be made again in its memory. Not for picked children.
  Distribution<Real> TakeRow() && { return std::move(rows_.front()); }

 private:
  explicit ProposalDist(Kind kind) : kind_(kind) {}

  Kind kind_;
  absl::InlinedVector<Distribution<Real>, 1> rows_;
  std::vector<int32_t> draws_;
  int32_t num_certain_ = 0;
};

// A drafted tree. `draft_rows` has one entry for every expanded node (a node that has children) in
// node order, the root first, none for leaves. In a chain entry i is the row of token i.
template <typename Real>
struct Proposal {
  TokenTree tree;
  std::vector<ProposalDist<Real>> draft_rows;

  // The row that the children of `node` (-1: the root) were drawn from; `node` must be expanded.
  const ProposalDist<Real>& RowOf(int32_t node) const { return draft_rows[IndexOf(node)]; }
  // Its place in draft_rows.
  size_t IndexOf(int32_t node) const;

  // True if no token was drawn from a row.
  bool deterministic() const;

  // A proposal whose tokens were all picked.
  static Proposal Deterministic(TokenTree tree);

  // kInvalidArgument unless the tree is sound, there is one entry for every expanded node, rows have
  // `vocab_size` entries, and draws name every child of their node and nothing else.
  absl::Status Validate(int32_t vocab_size) const;
};

extern template struct Proposal<float>;
extern template struct Proposal<double>;

}  // namespace paceline
