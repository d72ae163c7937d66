// Rule `relaxed`, lossy: accept what comes close to the target's likeliest token.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// The tokens of a row that `relaxed` accepts: the relaxed_top_n likeliest (ties to the lowest id), as
// far as they are within relaxed_delta of the largest probability.
template <typename Real>
class RelaxedMatch {
 public:
  // O(V), in memory lent by `memory` if that is not null.
  RelaxedMatch(const Distribution<Real>& row, const RuleOptions& options,
               RuleMemory* memory = nullptr);
  bool Accepts(int32_t token) const;

 private:
  const Distribution<Real>& row_;
  Real last_prob_;   // Of the last one accepted, in rank order.
  int32_t last_id_;
};

// At a node goes to the first child that RelaxedMatch accepts; otherwise, and at a leaf, y ~ p. At
// temperature 0 the rows are one-hot and it is `greedy`.
//
// Law: NOT the target's; JudgedRow::deviation as for `typical`. Reads no draft row to decide. Cost:
// O(V) a visited node. Source: algorithms D.10.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyRelaxed(const RuleInput<Real>& input);

}  // namespace paceline
