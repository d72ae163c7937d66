// Rule `ensemble`, lossy: draft and target answer together.
#pragma once

#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// `standard` against the mixture m = w p + (1 - w) q, w = options.ensemble_weight: accepts x iff
// u q(x) < m(x), otherwise emits y ~ norm((m - q)+), which is norm((p - q)+). After the last draft,
// where there is no q, y ~ p. A picked token has a one-hot q.
//
// Law: drafted positions follow m, the bonus p: NOT the target's unless w = 1.
// JudgedRow::deviation = (1 - w) TV(p, q). Errors: those of `standard`. Cost: as `standard`. Source:
// algorithms D.10.
template <typename Real>
absl::StatusOr<VerifyOutcome> VerifyEnsemble(const RuleInput<Real>& input);

}  // namespace paceline
