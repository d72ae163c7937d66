// Rule `block`: block verification.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// Along a chain of k tokens: P_0 = 1, P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)). For i < k the
// residual mass R_i = sum (P_i p_{i+1} - q_{i+1})+ gives h_i = R_i / (R_i + 1 - P_i), 1 where the
// denominator is 0; h_k = P_k. The accepted length is the largest i with u_i < h_i, else 0: a late
// success carries the earlier positions with it. Behind it emits y ~ norm((P_i p_{i+1} - q_{i+1})+),
// after the last draft y ~ p_{k+1}.
//
// Law: P(length >= i given x_1 .. x_i) = P_i, and the emitted tokens follow p exactly. The expected
// length is never below that of `standard`, and equal for k = 1 and for one-hot drafts. A
// deterministic position is a one-hot row like any other. Coins are addressed by (position, offset):
// those of a refused position are looked at, and must not be used again. Errors: those of
// `standard`. Cost: all k + 1 target rows, and O(V) a position.
// Source: Sun et al. 2024, Block Verification; algorithms D.7.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyBlock(const RuleInput<Real>& input);

}  // namespace paceline
