// Stage `no_repeat_ngram`: no sequence of n tokens comes twice.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 0.
bool NoRepeatNgramActive(const SamplingOptions& options);

// Masks each token t for which (last n - 1 tokens, t) is in the history, drafted ancestors included.
// n = 1 masks every token seen; a history shorter than n - 1 masks none. Cost: O(history).
// Source: Paulus et al. 2017.
template <typename Real>
void ApplyNoRepeatNgram(Candidates<Real>& candidates, const SamplingOptions& options,
                        const RowContext& context);

}  // namespace paceline
