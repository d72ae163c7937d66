#include "sampling/temperature.h"

namespace paceline {

bool TemperatureActive(const SamplingOptions& options) { return options.temperature != 1; }

template <typename Real>
void ApplyTemperature(Candidates<Real>& candidates, const SamplingOptions& options,
                      const RowContext&) {
  candidates.Temper(options.temperature);
}

template void ApplyTemperature<float>(Candidates<float>&, const SamplingOptions&,
                                      const RowContext&);
template void ApplyTemperature<double>(Candidates<double>&, const SamplingOptions&,
                                       const RowContext&);

}  // namespace paceline
