// Stage `xtc`: sometimes leaves the likeliest tokens out.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: probability 0, or a threshold above 0.5, which two tokens cannot reach.
bool XtcActive(const SamplingOptions& options);

// One coin a position, with xtc_probability: if it says so, drops of the tokens with probability >=
// xtc_threshold (within 1e-7, relatively) all but the last in rank order. Nothing happens where fewer
// than two reach it or fewer than min_keep would stay. Given the coin the row is a plain distribution
// and target and draft read the same coin. Its address has no offset and no node except under rules
// that look at noise behind a refusal (RowContext::xtc_by_round; algorithms C.2). Cost: a pass. Source: community definition (p-e-w); algorithms B.4.
template <typename Real>
void ApplyXtc(Candidates<Real>& candidates, const SamplingOptions& options,
              const RowContext& context);

}  // namespace paceline
