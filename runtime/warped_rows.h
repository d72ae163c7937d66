// Target rows of one proposal, warped when a rule first asks for them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  using RawRow = std::function<std::span<const float>(int32_t node)>;

  // `committed` is the context of the root's row.
  WarpedRows(const TokenTree& tree, RowContext committed, RawRow raw, Pipeline<float>& pipeline)
      : tree_(tree),
        committed_(committed),
        raw_(std::move(raw)),
        pipeline_(pipeline),
        rows_(tree.size() + 1) {}

  absl::StatusOr<const Distribution<float>*> Row(int32_t node) override;

  // The model's own logits of that row.
  std::span<const float> Raw(int32_t node) const { return raw_(node); }

 private:
  absl::StatusOr<RowContext> ContextOf(int32_t node, std::span<const int32_t> drafted);
  absl::StatusOr<double> MuOf(int32_t node);

  const TokenTree& tree_;
  RowContext committed_;
  RawRow raw_;
  Pipeline<float>& pipeline_;
  std::vector<std::optional<Distribution<float>>> rows_;
};

}  // namespace paceline
