// Stage `mask`: allowed ids, banned words and the least output length.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: no allowed ids, no bad words, min_tokens 0.
bool MaskActive(const SamplingOptions& options);

// Sets to -inf what may not come next: all but allowed_ids; the last token of a bad word whose
// other tokens end the history; eos_ids while the row's output, drafted tokens counted, is shorter
// than min_tokens. Padding beyond the vocabulary is cut when the row is taken in. Works on a dense
// row.
template <typename Real>
void ApplyMask(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context);

}  // namespace paceline
