#include "verify/k_seq.h"

#include <algorithm>
#include <cmath>

#include "verify/walk.h"

namespace paceline {
namespace {

constexpr double kWidth = 1e-13;  // Of the bracket that ends a bisection.

// Coin of the `attempt`-th candidate (from 1) of a branch; that of the position in a chain. Draws that
// all gave one token make a chain too, but every attempt has its own coin.
template <typename Real>
NoiseAddress AttemptNoise(const RuleInput<Real>& input, const Branch<Real>& branch,
                          size_t num_candidates, size_t attempt) {
  NoiseAddress noise = AcceptNoise(input, branch.child(), branch.depth);
  if (num_candidates > 1 || !input.proposal.tree.IsChain()) {
    noise.sub = static_cast<uint16_t>(attempt);
  }
  return noise;
}

template <typename Real>
absl::StatusOr<int32_t> JudgeCandidates(const RuleInput<Real>& input, const Branch<Real>& branch,
                                        VerifyOutcome& outcome) {
  const bool independent = branch.draft.kind() == ProposalDist<Real>::Kind::kIndependent;
  const bool single = branch.draft.kind() == ProposalDist<Real>::Kind::kWithoutReplacement &&
                      branch.children.size() == 1;
  if (!(independent && branch.draft.rows().size() == 1) && !single) {
    return UnfitDraws("k-seq", "candidates drawn with replacement from one row", branch.node);
  }
  const std::span<const int32_t> candidates =
      independent ? branch.draft.draws() : std::span<const int32_t>(branch.children);
  const Distribution<Real>& draft = branch.draft.row();
  const KSeqDivisor divisor = FindKSeqDivisor(branch.row, draft, candidates.size());
  // 1 - (1 - beta)^m, without cancellation for a small beta.
  const double attempts_accept =
      -std::expm1(static_cast<double>(candidates.size()) * std::log1p(-divisor.beta));
  outcome.judged.push_back(JudgeRow(input, branch));
  outcome.judged.back().expected_acceptance = attempts_accept;
  for (size_t j = 0; j < candidates.size(); ++j) {
    const int32_t child = candidates[j];
    PACELINE_ASSIGN_OR_RETURN(const double draft_prob, DraftProbOf(input, branch, child));
    const CoinFlip flip = input.randomness.Coin(
        AttemptNoise(input, branch, candidates.size(), j + 1), branch.row.Prob(input.proposal.tree.tokens[child]),
        divisor.rho * draft_prob);
    TraceChild(input, branch, child, draft_prob, flip.uniform,
               flip.accepted ? Decision::kAccepted : Decision::kRejected, outcome);
    if (flip.accepted) return child;
  }
  WorkingRow<Real> left(branch.row, input.memory);
  if (divisor.beta > 0) {
    left.SubtractMin(attempts_accept / divisor.beta, divisor.rho, draft);
  }
  EmitLeft(input, branch.row, left, branch.depth, outcome);
  return -1;
}

}  // namespace

template <typename Real>
KSeqDivisor FindKSeqDivisor(const Distribution<Real>& target, const Distribution<Real>& draft,
                            size_t num_candidates) {
  const auto attempts = static_cast<double>(num_candidates);
  const auto divisor = [&](double rho) {
    return KSeqDivisor{rho, std::min(1.0, target.DividedOverlap(rho, draft))};
  };
  const auto holds = [&](const KSeqDivisor& at) {
    return 1 - std::pow(1 - at.beta, attempts) <= at.rho * at.beta;
  };
  KSeqDivisor upper = divisor(1);
  if (num_candidates == 1 || holds(upper)) return upper;
  double lower = 1;
  for (upper = divisor(attempts); upper.rho - lower > kWidth * upper.rho;) {
    const double middle = (lower + upper.rho) / 2;
    if (middle <= lower || middle >= upper.rho) break;
    const KSeqDivisor at = divisor(middle);
    if (holds(at)) {
      upper = at;
    } else {
      lower = middle;
    }
  }
  return upper;
}

template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyKSeq(const RuleInput<Real>& input) {
  return WalkTree(input, [&](const Branch<Real>& branch, VerifyOutcome& outcome) {
    return JudgeCandidates(input, branch, outcome);
  });
}

#define PACELINE_INSTANTIATE(Real)                                                            \
  template KSeqDivisor FindKSeqDivisor(const Distribution<Real>&, const Distribution<Real>&,  \
                                       size_t);                                               \
  template absl::StatusOr<VerifyOutcome> VerifyKSeq(const RuleInput<Real>&);

PACELINE_INSTANTIATE(float)
PACELINE_INSTANTIATE(double)
#undef PACELINE_INSTANTIATE

}  // namespace paceline
