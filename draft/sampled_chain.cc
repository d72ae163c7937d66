#include "draft/sampled_chain.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "sampling/mirostat2.h"

namespace paceline {
namespace {

RowContext ContextOf(const DraftRequest& request, std::span<const int32_t> drafted,
                     double mirostat_mu) {
  RowContext context;
  context.history = {request.committed, request.prompt_length, drafted, request.counts};
  context.key = request.key;
  context.position = static_cast<uint32_t>(request.committed.size() + drafted.size());
  context.offset = static_cast<uint8_t>(drafted.size());
  context.xtc_by_round = request.xtc_by_round;
  context.mirostat_mu = mirostat_mu;
  return context;
}

// A drafted token and the row it was drawn from.
struct Drawn {
  int32_t token;
  ProposalDist<float> row;
};

int32_t DrawToken(const Distribution<float>& row, const DraftRequest& request,
                  const RowContext& context) {
  NoiseAddress noise{context.position, Purpose::kDraft, context.offset, context.node};
  if (request.shared_noise) noise = {context.position, Purpose::kToken};
  return row.IdAt(DrawIndex(row.probs(), row.ids(), request.key, noise, request.draw));
}

absl::StatusOr<Drawn> DrawFrom(std::span<const float> logits, const DraftRequest& request,
                               const RowContext& context, Pipeline<float>& pipeline) {
  PACELINE_ASSIGN_OR_RETURN(Distribution<float> row, pipeline.Apply(logits, context));
  if (pipeline.greedy()) return Drawn{row.Argmax(), ProposalDist<float>::Deterministic()};
  const int32_t token = DrawToken(row, request, context);
  return Drawn{token, ProposalDist<float>::Sampled(std::move(row))};
}

}  // namespace

absl::StatusOr<Proposal<float>> DrawChain(const DraftRequest& request, int32_t count,
                                          Pipeline<float>& pipeline,
                                          std::span<const int32_t> end_ids,
                                          const NextRow& next_row) {
  const int32_t best_of = pipeline.IsPlainArgmax() ? pipeline.vocab_size() : 0;
  Proposal<float> proposal;
  double mirostat_mu = request.mirostat_mu;
  std::vector<int32_t>& drafted = proposal.tree.tokens;
  while (proposal.tree.size() < count) {
    PACELINE_ASSIGN_OR_RETURN(const ForwardOutput output, next_row(drafted, best_of));
    Drawn drawn{0, ProposalDist<float>::Deterministic()};
    if (best_of > 0) {
      PACELINE_ASSIGN_OR_RETURN(drawn.token, output.BestAmong(0, best_of));
    } else {
      PACELINE_ASSIGN_OR_RETURN(
          drawn, DrawFrom(output.Row(0), request, ContextOf(request, drafted, mirostat_mu), pipeline));
      if (!drawn.row.deterministic()) {
        mirostat_mu = NextMu(pipeline.options(), mirostat_mu, drawn.row.row().Prob(drawn.token));
      }
    }
    proposal.tree.Add(proposal.tree.size() - 1, drawn.token);
    proposal.draft_rows.push_back(std::move(drawn.row));
    if (std::find(end_ids.begin(), end_ids.end(), drawn.token) != end_ids.end()) break;
  }
  return proposal;
}

}  // namespace paceline
