// Rule `rrs`: recursive rejection sampling of several candidates.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// At a node with candidates c_1 .. c_m in draw order: r_1 = p; accepts c_j iff u_j q_j(c_j) <
// r_j(c_j), otherwise r_{j+1} = norm((r_j - q_j)+). If none is accepted emits y ~ r_{m+1}; at a leaf
// y ~ p. q_j is the row the j-th candidate was drawn from: q (with replacement), q with c_1 .. c_{j-1}
// zeroed and what remains normalised (without), or another drafter's row (mixed). A candidate that
// came again has r_j = 0, is refused and reads no coin.
//
// Law: each stage is `standard` with target r_j, so the emitted tokens follow p exactly, on one
// position and, since the rows of a node belong to its own prefix, on a tree. With one candidate it
// is `standard`, token for token. Errors: kInvalidArgument for picked candidates (they were not drawn
// from a row; `walk` takes them) and for a candidate with q_j = 0. Cost: O(m V) a visited node; rows
// of other nodes are not read. Source: Miao et al. 2024 (SpecInfer); Jeon et al. 2024, Yang et al.
// 2024 (without replacement); algorithms D.8, D.9.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyRrs(const RuleInput<Real>& input);

}  // namespace paceline
