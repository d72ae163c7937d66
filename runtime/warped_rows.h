// Target rows of one proposal, warped when a rule first asks for them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "sampling/pipeline.h"
#include "sampling/row_context.h"
#include "verify/rule.h"

namespace paceline {

// Row of a node: the request's pipeline over the target's logits, with the history this row really
// has: the committed tokens and the node's own drafted ancestors. Borrows everything; lives for one
// round.
class WarpedRows : public TargetRows<float> {
 public:
  // Row of a node in the i-th of the sequence's caches; the second is asked for under guidance alone.
  using RawRow = std::function<std::span<const float>(size_t cache, int32_t node)>;

  // `committed` is the context of the root's row.
  // `memory` holds the rows and is used again by the next round's; it outlives these.
  WarpedRows(const TokenTree& tree, RowContext committed, RawRow raw, Pipeline<float>& pipeline,
             std::vector<Distribution<float>>& memory)
      : tree_(tree),
        committed_(committed),
        raw_(std::move(raw)),
        pipeline_(pipeline),
        rows_(memory),
        made_(tree.size() + 1, false) {
    if (rows_.size() < made_.size()) rows_.resize(made_.size());
  }

  absl::StatusOr<const Distribution<float>*> Row(int32_t node) override;

  // The model's own logits of that row.
  std::span<const float> Raw(int32_t node) const { return raw_(0, node); }

 private:
  absl::StatusOr<RowContext> ContextOf(int32_t node, std::span<const int32_t> drafted);
  absl::StatusOr<double> MuOf(int32_t node);

  const TokenTree& tree_;
  RowContext committed_;
  RawRow raw_;
  Pipeline<float>& pipeline_;
  std::vector<Distribution<float>>& rows_;  // Entry node + 1; sound where made_.
  std::vector<bool> made_;
};

}  // namespace paceline
