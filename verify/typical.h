// Rule `typical`, lossy: accept what the target finds likely enough.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// The probability that a token must exceed: min(epsilon, delta exp(-H)), H = -sum p log(p + 1e-5).
template <typename Real>
double TypicalThreshold(const Distribution<Real>& row, const RuleOptions& options);

// At a node goes to the first child x with p(x) > TypicalThreshold; otherwise, and at a leaf, emits
// the argmax of p, or a draw (options.typical_draw).
//
// Law: NOT the target's. Along a sampled chain a position emits q(x) for every x above the threshold
// and the rest of its mass at the last token; JudgedRow::deviation is its total variation from p (for
// a node with one child). Reads no draft row to decide. Cost: O(V) a visited node. Source: Cai et al.
// 2024 (Medusa); algorithms D.10.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyTypical(const RuleInput<Real>& input);

}  // namespace paceline
