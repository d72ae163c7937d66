// Stage `logit_bias`: adds to chosen logits.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: an empty list.
bool LogitBiasActive(const SamplingOptions& options);

// l[t] += b[t] for every listed token; -inf bans it. A masked token stays masked. Works on a dense
// row.
template <typename Real>
void ApplyLogitBias(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context);

}  // namespace paceline
