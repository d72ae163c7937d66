#include "runtime/warped_rows.h"

#include "base/status_macros.h"

namespace paceline {

RowContext WarpedRows::ContextOf(int32_t node, std::span<const int32_t> drafted) const {
  RowContext context = committed_;
  context.history.drafted = drafted;
  context.position += static_cast<uint32_t>(drafted.size());
  context.offset = static_cast<uint8_t>(drafted.size());
  context.node = tree_.IsChain() ? 0 : static_cast<uint16_t>(node + 1);
  return context;
}

absl::StatusOr<const Distribution<float>*> WarpedRows::Row(int32_t node) {
  std::optional<Distribution<float>>& row = rows_[node + 1];
  if (!row) {
    const std::vector<int32_t> drafted = tree_.PathTokens(node);
    PACELINE_ASSIGN_OR_RETURN(row, pipeline_.Apply(raw_(node), ContextOf(node, drafted)));
  }
  return &*row;
}

}  // namespace paceline
