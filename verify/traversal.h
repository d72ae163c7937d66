// Rule `traversal`: leaf-to-root verification of a sampled tree.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// visit(v, R) with P = the target's row and Q = the draft's row of v: for each child c with token x,
// in draw order, visit(c, min(1, R P(x) / Q(x))); if that accepted, done. Otherwise M = (R P - Q)+,
// s = sum M; R = s / (s + 1 - R), 0 if the denominator is; P = M / s if s > 0; Q(x) = 0, normalised.
// Then accepts v with probability R (its coin): the round is its path and y ~ P. Starts as
// visit(root, 1), whose R stays 1.
//
// Law: exact, by induction from the leaves; a longer path that is accepted carries its ancestors with
// it, so the expected length is not below that of `rrs`. A chain gives `block`, depth 1 gives `rrs`. A
// single picked child is a one-hot row. Errors: kInvalidArgument for children chosen otherwise than
// drawn without replacement, and for a token with Q = 0. Cost: O(V) a node, all rows but those below
// a token that the target gives no mass. Coins are addressed by (position, offset, node): those of
// refused nodes are looked at, and must not be used again. Source: Weng et al. 2025; algorithms D.9.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyTraversal(const RuleInput<Real>& input);

}  // namespace paceline
