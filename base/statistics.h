// Summaries of measured values and of counted trials.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline {

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

// Wilson score interval at 95 % (z = 1.959964) of a rate seen as `successes` of `trials`
// independent trials. Without trials: [0, 1]. Source: Wilson 1927.
Interval WilsonInterval(double successes, int64_t trials);

// Median of `values`; the mean of the middle two for an even count. NaN if empty.
double Median(std::span<const double> values);

// Percentile interval at 95 % of a ratio of sums, sum(numerators) / sum(denominators), with whole
// entries (prompts) resampled with replacement. Deterministic: `seed` addresses the resampling.
// A resample whose denominators sum to 0 has no ratio and is left out. Errors: none; fewer than two
// entries, or no ratio at all, give the ratio of the whole twice.
Interval BootstrapRatio(std::span<const double> numerators, std::span<const double> denominators,
                        int32_t resamples, uint64_t seed);

}  // namespace paceline
