// Rules `match` (`walk`), `greedy` and `coupled`: the target draws, a draft is accepted while equal.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// At the root and then at each accepted node: draws t from the target's row with the token noise of
// that position; if a child holds t, goes there, else emits t and stops. At a leaf the drawn token
// is the bonus.
//
// Law: every emitted token is the target's own draw, so the rule is exact and, for one seed, gives
// the same tokens whatever was drafted and however; q is never read. Acceptance at a node:
// p(children). Trees of any shape. Errors: those of the target rows. Cost: one draw, O(V), a
// visited node. Source: algorithms D.5, D.9 (`walk`).
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyMatch(const RuleInput<Real>& input);

// The same walk with the argmax of each row, ties to the lowest id: the rule of temperature 0.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyGreedy(const RuleInput<Real>& input);

// The same walk along a chain whose drafter drew each token with the very Gumbel noise that the
// target draws with: argmax of log w_t - log(-log u_t), u_t of (position, token). `randomness` must
// draw so too; the rule is exact and invariant anyway, but then accepts no more than `match`.
//
// Law: as `match`. P(draft = target = x) = 1 / sum_y max(p_y / p_x, q_y / q_x), so acceptance lies
// between (1 - TV) / (1 + TV) and 1 - TV. Errors: kInvalidArgument for a tree. Source: Daliri et al.
// 2024; algorithms D.6.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyCoupled(const RuleInput<Real>& input);

}  // namespace paceline
