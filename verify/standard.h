// Rule `standard`: token rejection, known as speculative sampling.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// Along a chain: accepts x_i iff u_i q_i(x_i) < p_i(x_i) (strictly, so that u = 0 never accepts a
// token with p = 0). At the first failure emits y ~ norm((p_i - q_i)+) with the token noise of that
// position; after the last draft y ~ p_{k+1}. A deterministic position is judged as `match` judges
// it: the target draws, and the draft is accepted iff equal.
//
// Law: x leaves accepted with min(p, q)(x) and the residual fills up to p, so the emitted tokens
// follow p exactly. Acceptance given that a position is reached: sum min(p, q). An empty residual
// (rows whose sums differ by rounding) draws from p with the same uniform. Errors: kInvalidArgument
// for a tree that is no chain, and for a drafted token with q(x) = 0 (the row handed over is not
// the one drawn from); those of the target rows. Cost: K comparisons, and O(V) after the first
// rejection. Source: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023; algorithms D.3, D.4.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyStandard(const RuleInput<Real>& input);

}  // namespace paceline
