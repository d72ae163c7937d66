// Verifies a drafted block for a program that brings its own logits: two drafted tokens, three target
// rows. Prints the tokens that may be emitted.
#include <cstdio>

#include "sampling/pipeline.h"
#include "verify/given_rows.h"
#include "verify/rules.h"

int main() {
  using Logits = std::vector<float>;
  const std::vector<Logits> target = {{2, 1, 0, -1}, {0, 3, 1, 0}, {1, 1, 1, 1}};
  const std::vector<Logits> draft = {{1, 2, 0, -1}, {0, 2, 2, 0}};
  const paceline::StreamKey stream{.seed = 7, .stream = 0};
  const uint32_t position = 12;  // Tokens that are committed already.

  paceline::SamplingOptions options;
  options.temperature = 0.8;
  options.top_p = 0.95;
  auto pipeline = paceline::Pipeline<float>::Create(options, 4).value();
  const auto row = [&](const Logits& logits) {
    return pipeline.Apply(std::span<const float>(logits), {}).value();
  };
  paceline::Proposal<float> proposal;
  for (uint8_t i = 0; i < draft.size(); ++i) {
    const auto drawn_from = row(draft[i]);
    const double u = Uniform(stream, {position + i, paceline::Purpose::kDraft, i});
    proposal.tree.Add(i - 1, drawn_from.Draw(u));
    proposal.draft_rows.push_back(paceline::ProposalDist<float>::Sampled(drawn_from));
  }
  paceline::GivenRows<float> rows({row(target[0]), row(target[1]), row(target[2])});
  paceline::StreamRandomness randomness(stream);
  const auto* rule = paceline::FindRule("block").value();
  const auto outcome = rule->verify({proposal, rows, randomness, position}).value();
  for (const int32_t node : outcome.path) std::printf("accepted %d\n", proposal.tree.tokens[node]);
  std::printf("then %d\n", outcome.next_token);
}
