// Stage `mirostat2`: keeps the surprise of what is drawn near a target.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: tau 0. Stands in place of all filters; with one of them it is refused.
bool Mirostat2Active(const SamplingOptions& options);

// Keeps tokens with -log2 p <= mu of the row (RowContext::mirostat_mu), at least min_keep in rank
// order. Cost: a pass. Source: Basu et al. 2021; algorithms B.4.
template <typename Real>
void ApplyMirostat2(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context);

// mu of a sequence that has drawn nothing: 2 tau.
double FirstMu(const SamplingOptions& options);

// mu behind a token of probability `prob` in its own truncated row: mu - eta (-log2 prob - tau). A
// token that was truncated away (prob 0) cannot come, and leaves mu as it is.
double NextMu(const SamplingOptions& options, double mu, double prob);

}  // namespace paceline
