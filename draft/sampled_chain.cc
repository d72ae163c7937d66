#include "draft/sampled_chain.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace paceline {
namespace {

RowContext ContextOf(const DraftRequest& request, std::span<const int32_t> drafted) {
  RowContext context;
  context.history = {request.committed, request.prompt_length, drafted, request.counts};
  context.key = request.key;
  context.position = static_cast<uint32_t>(request.committed.size() + drafted.size());
  context.offset = static_cast<uint8_t>(drafted.size());
  return context;
}

int32_t DrawDraft(const Distribution<float>& row, const RowContext& context) {
  return row.Draw(
      Uniform(context.key, {context.position, Purpose::kDraft, context.offset, context.node}));
}

}  // namespace

absl::StatusOr<Proposal<float>> DrawChain(const DraftRequest& request, int32_t count,
                                          Pipeline<float>& pipeline,
                                          std::span<const int32_t> end_ids,
                                          const NextLogits& next_logits) {
  Proposal<float> proposal;
  std::vector<int32_t>& drafted = proposal.tree.tokens;
  while (proposal.tree.size() < count) {
    PACELINE_ASSIGN_OR_RETURN(const std::span<const float> logits, next_logits(drafted));
    const RowContext context = ContextOf(request, drafted);
    PACELINE_ASSIGN_OR_RETURN(Distribution<float> row, pipeline.Apply(logits, context));
    const int32_t token = pipeline.greedy() ? row.Argmax() : DrawDraft(row, context);
    proposal.tree.Add(proposal.tree.size() - 1, token);
    proposal.draft_rows.push_back(pipeline.greedy() ? ProposalDist<float>::Deterministic()
                                                    : ProposalDist<float>::Sampled(std::move(row)));
    if (std::find(end_ids.begin(), end_ids.end(), token) != end_ids.end()) break;
  }
  return proposal;
}

}  // namespace paceline
