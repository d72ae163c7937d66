// Stage `dry`: penalises a token by how long a repetition it would go on with.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: multiplier 0, or window 0.
bool DryActive(const SamplingOptions& options);

// Over the last dry_penalty_last_n tokens of the history (-1: all), drafted ancestors included: for
// every earlier place whose ending equals the history's for L tokens, the token t behind it has length
// L, the largest for each t. If L >= dry_allowed_length (and L >= 1 unless that is 0), subtracts
// multiplier * base^(L - allowed), at most the largest float32, unless t alone is a breaker. No match
// reaches past the last token of the breaker that starts nearest the end. Cost: O(window), by the
// Z-array of the reversed window. Source: community definition (p-e-w); algorithms B.4.
template <typename Real>
void ApplyDry(Candidates<Real>& candidates, const SamplingOptions& options,
              const RowContext& context);

}  // namespace paceline
