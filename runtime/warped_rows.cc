#include "runtime/warped_rows.h"

#include "base/status_macros.h"
#include "sampling/guidance.h"
#include "sampling/mirostat2.h"

namespace paceline {

absl::StatusOr<RowContext> WarpedRows::ContextOf(int32_t node, std::span<const int32_t> drafted) {
  RowContext context = committed_;
  context.history.drafted = drafted;
  context.position += static_cast<uint32_t>(drafted.size());
  context.offset = static_cast<uint8_t>(drafted.size());
  context.node = tree_.IsChain() ? 0 : static_cast<uint16_t>(node + 1);
  if (GuidanceActive(pipeline_.options())) context.unconditional = raw_(1, node);
  PACELINE_ASSIGN_OR_RETURN(context.mirostat_mu, MuOf(node));
  return context;
}

// Mirostat's mu moves with the surprise of each token in the row that gave it: with it on, a parent's
// row is made before its children's.
absl::StatusOr<double> WarpedRows::MuOf(int32_t node) {
  if (node < 0 || pipeline_.greedy() || !Mirostat2Active(pipeline_.options())) return committed_.mirostat_mu;
  const int32_t parent = tree_.parents[node];
  PACELINE_ASSIGN_OR_RETURN(const double mu, MuOf(parent));
  PACELINE_ASSIGN_OR_RETURN(const Distribution<float>* row, Row(parent));
  return NextMu(pipeline_.options(), mu, row->Prob(tree_.tokens[node]));
}

absl::StatusOr<const Distribution<float>*> WarpedRows::Row(int32_t node) {
  Distribution<float>& row = rows_[node + 1];
  if (made_[node + 1]) return &row;
  const std::vector<int32_t> drafted = tree_.PathTokens(node);
  PACELINE_ASSIGN_OR_RETURN(const RowContext context, ContextOf(node, drafted));
  PACELINE_RETURN_IF_ERROR(pipeline_.Apply(Raw(node), context, row));
  made_[node + 1] = true;
  return &row;
}

}  // namespace paceline
