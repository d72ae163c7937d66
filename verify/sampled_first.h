// Rule `sampled-first`: certain candidates and one sampled, which is judged first.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// At a node with certain candidates T (a function of the prefix, usually the likeliest of the draft)
// and one candidate s ~ q_r, the draft's row with T zeroed and normalised: accepts s iff u q_r(s) <
// p(s). Otherwise draws y ~ norm((p - q_r)+) with the token noise of the position; a y in T is
// accepted and the walk goes on below it, else it is emitted. Without s, y ~ p decides alone. At a
// leaf y ~ p. A node with one drawn child is the case of an empty T.
//
// Law: `standard` with draft q_r, so exact whatever T is. Acceptance: p(T) + sum outside T of
// min(p, q_r), the most that any lossless rule reaches for such candidates. Also known as greedy
// multi-draft and, for two candidates, as SpecHub (alias `spechub`). Errors: kInvalidArgument for
// candidates chosen otherwise, and for q_r(s) = 0. Cost: O(V) a visited node. Source: Hu et al. 2025;
// Sun et al. 2024 (SpecHub); algorithms D.8, D.9.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifySampledFirst(const RuleInput<Real>& input);

}  // namespace paceline
