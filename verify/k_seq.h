// Rule `k-seq`: k-sequential selection among candidates drawn with replacement.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// The divisor of m candidates, and the acceptance of one attempt under it.
struct KSeqDivisor {
  double rho;   // In [1, m]; a little above the root, since a larger one stays exact.
  double beta;  // sum min(p / rho, q)
};

// Smallest rho in [1, m] with 1 - (1 - beta)^m <= rho beta, by bisection. Cost: about 50 passes, one
// for m = 1.
template <typename Real>
KSeqDivisor FindKSeqDivisor(const Distribution<Real>& target, const Distribution<Real>& draft,
                            size_t num_candidates);

// At a node with m independent draws of one row q, in order: accepts c_j iff u_j rho q(c_j) <
// p(c_j), a fresh coin for every attempt, also for a token that came again. If none is accepted
// emits y ~ norm((p - min(p / rho, q) (1 - (1 - beta)^m) / beta)+); beta = 0: y ~ p. At a leaf y ~ p.
//
// Law: the attempts accept x with (1 - (1 - beta)^m) / beta * min(p / rho, q)(x) <= p(x) in all, and
// the residual fills up to p exactly. Acceptance: 1 - (1 - beta)^m. With one candidate it is
// `standard`, token for token. Errors: kInvalidArgument for candidates drawn otherwise (`rrs` takes
// those drawn without replacement) and for one with q = 0. Cost: O(V) a bisection step of a visited
// node. Source: Sun et al. 2023 (SpecTr); algorithms D.8.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyKSeq(const RuleInput<Real>& input);

}  // namespace paceline
