#include "sampling/temperature.h"

#include <algorithm>
#include <cmath>

namespace paceline {

namespace {

// lo + (hi - lo) (H / log m)^e for m survivors of entropy H.
template <typename Real>
double DynamicTemperature(Candidates<Real>& candidates, const SamplingOptions& options) {
  const int64_t count = candidates.NumSurvivors();
  if (count < 2) return 1;
  const double low = std::max(0.0, options.temperature - options.dynatemp_range);
  const double high = options.temperature + options.dynatemp_range;
  const double share = candidates.Entropy() / std::log(static_cast<double>(count));
  return low + (high - low) * std::pow(std::max(0.0, share), options.dynatemp_exponent);
}

}  // namespace

bool TemperatureActive(const SamplingOptions& options) {
  return options.temperature != 1 || options.dynatemp_range > 0;
}

template <typename Real>
void ApplyTemperature(Candidates<Real>& candidates, const SamplingOptions& options,
                      const RowContext&) {
  const double temperature = options.dynatemp_range > 0 ? DynamicTemperature(candidates, options)
                                                        : options.temperature;
  if (temperature == 0) return candidates.KeepRanked(1);
  candidates.Temper(temperature);
}

template void ApplyTemperature<float>(Candidates<float>&, const SamplingOptions&,
                                      const RowContext&);
template void ApplyTemperature<double>(Candidates<double>&, const SamplingOptions&,
                                       const RowContext&);

}  // namespace paceline
