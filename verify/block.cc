#include "verify/block.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/status_macros.h"
#include "verify/chain.h"

namespace paceline {
namespace {

// What is known of the prefix x_1 .. x_i.
struct Prefix {
  double kept = 1;                  // P_i
  double draft_prob = kNoNumber;    // q_i(x_i)
  double target_prob = kNoNumber;   // p_i(x_i)
  double uniform = kNoNumber;       // Coin of position i, if it was flipped.
};

// P_0 .. P_k. Behind a token that the target gives no mass they are 0, and need no rows.
template <typename Real>
absl::StatusOr<std::vector<Prefix>> Prefixes(const RuleInput<Real>& input) {
  const TokenTree& tree = input.proposal.tree;
  std::vector<Prefix> prefixes(1);
  for (int32_t depth = 0; depth < tree.size() && prefixes.back().kept > 0; ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(depth - 1));
    PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbAt(input, depth));
    const double target_prob = row->Prob(tree.tokens[depth]);
    const double kept = std::min(1.0, prefixes.back().kept * target_prob / draft_prob);
    prefixes.push_back({kept, draft_prob, target_prob});
  }
  prefixes.resize(tree.size() + 1, {0});
  return prefixes;
}

// h_i of the prefix of `length` tokens.
template <typename Real>
absl::StatusOr<double> StopProb(const RuleInput<Real>& input, double kept, int32_t length) {
  if (length == input.proposal.tree.size()) return kept;
  PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(length - 1));
  const double mass = ResidualMass(input, kept, *row, length);
  const double denominator = mass + 1 - kept;
  return denominator > 0 ? mass / denominator : 1.0;
}

// The accepted length. Coins are flipped from the end: the first success decides.
template <typename Real>
absl::StatusOr<int32_t> Length(const RuleInput<Real>& input, std::vector<Prefix>& prefixes) {
  for (int32_t length = input.proposal.tree.size(); length > 0; --length) {
    if (prefixes[length].kept == 0) continue;
    PACELINE_ASSIGN_OR_RETURN(const double stop, StopProb(input, prefixes[length].kept, length));
    const CoinFlip flip = input.randomness.Coin(AcceptNoise(input, length - 1), stop, 1.0);
    prefixes[length].uniform = flip.uniform;
    if (flip.accepted) return length;
  }
  return 0;
}

// Rows that judged: those of the accepted tokens and of the first refused one.
template <typename Real>
absl::Status Report(const RuleInput<Real>& input, std::span<const Prefix> prefixes, int32_t length,
                    VerifyOutcome& outcome) {
  const TokenTree& tree = input.proposal.tree;
  for (int32_t depth = 0; depth < std::min(length + 1, tree.size()); ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(depth - 1));
    outcome.judged.push_back(JudgeRow(input, *row, depth));
    const Prefix& prefix = prefixes[depth + 1];
    outcome.trace.push_back({input.position + depth, depth, tree.tokens[depth], prefix.target_prob,
                             prefix.draft_prob, prefix.uniform,
                             depth < length ? Decision::kAccepted : Decision::kRejected});
    if (depth < length) outcome.path.push_back(depth);
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<Real>& input) {
  const int32_t num_draft = input.proposal.tree.size();
  PACELINE_RETURN_IF_ERROR(CheckChain(input.proposal.tree, "block"));
  PACELINE_ASSIGN_OR_RETURN(std::vector<Prefix> prefixes, Prefixes(input));
  PACELINE_ASSIGN_OR_RETURN(const int32_t length, Length(input, prefixes));
  VerifyOutcome outcome;
  PACELINE_RETURN_IF_ERROR(Report(input, prefixes, length, outcome));
  PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(length - 1));
  if (length == num_draft) {
    EmitDraw(input, *row, length, FinalDecision(input), outcome);
  } else {
    EmitResidual(input, prefixes[length].kept, *row, length, outcome);
  }
  return outcome;
}

template absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<double>&);

}  // namespace paceline
