#include "verify/block.h"

#include <algorithm>
#include <span>

#include "absl/container/inlined_vector.h"
#include "base/status_macros.h"
#include "verify/judge.h"

namespace paceline {
namespace {

// What is known of the prefix x_1 .. x_i.
struct Prefix {
  double kept = 1;                  // P_i
  double draft_prob = kNoNumber;    // q_i(x_i)
  double target_prob = kNoNumber;   // p_i(x_i)
  double uniform = kNoNumber;       // Coin of position i, if it was flipped.
};

// Of chains of up to 16 tokens without memory of their own.
using Prefixes = absl::InlinedVector<Prefix, 17>;

// P_0 .. P_k. Behind a token that the target gives no mass they are 0, and need no rows.
template <typename Real>
absl::StatusOr<Prefixes> PrefixesOf(const RuleInput<Real>& input) {
  const TokenTree& tree = input.proposal.tree;
  Prefixes prefixes(1);
  for (int32_t depth = 0; depth < tree.size() && prefixes.back().kept > 0; ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input, depth - 1, depth));
    PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input, branch, depth));
    const double target_prob = branch.row.Prob(tree.tokens[depth]);
    const double kept = std::min(1.0, prefixes.back().kept * target_prob / draft_prob);
    prefixes.push_back({kept, draft_prob, target_prob});
  }
  prefixes.resize(tree.size() + 1, Prefix{0});
  return prefixes;
}

// h_i of the prefix of `length` < k tokens; `left` becomes the row that is drawn from if the round
// ends there.
template <typename Real>
absl::StatusOr<double> StopProb(const RuleInput<Real>& input, double kept, int32_t length,
                                WorkingRow<Real>& left) {
  PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input, length - 1, length));
  const double mass = SubtractDraft(input, branch, kept, left);
  const double denominator = mass + 1 - kept;
  return denominator > 0 ? mass / denominator : 1.0;
}

// Rows that judged: those of the accepted tokens and of the first refused one.
template <typename Real>
absl::Status Report(const RuleInput<Real>& input, std::span<const Prefix> prefixes, int32_t length,
                    VerifyOutcome& outcome) {
  for (int32_t depth = 0; depth < std::min(length + 1, input.proposal.tree.size()); ++depth) {
    PACELINE_ASSIGN_OR_RETURN(const Branch<Real> branch, BranchAt(input, depth - 1, depth));
    outcome.judged.push_back(JudgeRow(input, branch));
    const Prefix& prefix = prefixes[depth + 1];
    TraceChild(input, branch, depth, prefix.draft_prob, prefix.uniform,
               depth < length ? Decision::kAccepted : Decision::kRejected, outcome);
    if (depth < length) outcome.path.push_back(depth);
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<Real>& input) {
  const int32_t num_draft = input.proposal.tree.size();
  PACELINE_RETURN_IF_ERROR(CheckChain(input.proposal, "block"));
  PACELINE_ASSIGN_OR_RETURN(Prefixes prefixes, PrefixesOf(input));
  // Coins are flipped from the end: the first success decides the length.
  int32_t length = num_draft;
  for (;; --length) {
    Prefix& prefix = prefixes[length];
    if (prefix.kept == 0) continue;
    PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row, input.rows.Row(length - 1));
    WorkingRow<Real> left(*row, input.memory);
    double stop = prefix.kept;
    if (length < num_draft) {
      PACELINE_ASSIGN_OR_RETURN(stop, StopProb(input, prefix.kept, length, left));
    }
    if (length > 0) {
      const NoiseAddress noise = AcceptNoise(input, length - 1, length - 1);
      const CoinFlip flip = input.randomness.Coin(noise, stop, 1.0);
      prefix.uniform = flip.uniform;
      if (!flip.accepted) continue;
    }
    VerifyOutcome outcome = StartOutcome(input);
    PACELINE_RETURN_IF_ERROR(Report(input, prefixes, length, outcome));
    if (length == num_draft) {
      EmitDraw(input, *row, length, FinalDecision(input), outcome);
    } else {
      EmitLeft(input, *row, left, length, outcome);
    }
    return outcome;
  }
}

template absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<float>&);
template absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<double>&);

}  // namespace paceline
