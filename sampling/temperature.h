// Stage `temperature`: flattens or sharpens the row.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 1. Temperature 0 is not a stage: the pipeline then takes the argmax.
bool TemperatureActive(const SamplingOptions& options);

// l / T, computed on logits less their maximum, so that no positive T overflows. With dynatemp_range
// d > 0, T' = lo + (hi - lo) (H / log m)^e in place of T: lo = max(0, T - d), hi = T + d, H the
// entropy and m the number of unmasked tokens; m = 1 leaves the row alone, T' = 0 is the argmax.
template <typename Real>
void ApplyTemperature(Candidates<Real>& candidates, const SamplingOptions& options,
                      const RowContext& context);

}  // namespace paceline
