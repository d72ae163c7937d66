// Stage `temperature`: flattens or sharpens the row.
#pragma once

#include "sampling/candidates.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// Off: 1. Temperature 0 is not a stage: the pipeline then takes the argmax.
bool TemperatureActive(const SamplingOptions& options);

// l / T, computed on logits less their maximum, so that no positive T overflows.
template <typename Real>
void ApplyTemperature(Candidates<Real>& candidates, const SamplingOptions& options,
                      const RowContext& context);

}  // namespace paceline
