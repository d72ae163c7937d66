#include "base/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"

namespace paceline {

Interval WilsonInterval(double successes, int64_t trials) {
  if (trials <= 0) return {0.0, 1.0};
  constexpr double kZ = 1.959964;
  const double n = static_cast<double>(trials);
  const double rate = successes / n;
  const double scale = 1.0 + kZ * kZ / n;
  const double centre = (rate + kZ * kZ / (2.0 * n)) / scale;
  const double half = kZ / scale * std::sqrt(rate * (1.0 - rate) / n + kZ * kZ / (4.0 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

double Median(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}

Interval BootstrapRatio(std::span<const double> numerators, std::span<const double> denominators,
                        int32_t resamples, uint64_t seed) {
  const size_t count = numerators.size();
  const double ratio = std::accumulate(numerators.begin(), numerators.end(), 0.0) /
                       std::accumulate(denominators.begin(), denominators.end(), 0.0);
  if (count < 2) return {ratio, ratio};
  std::vector<double> ratios;
  for (int32_t r = 0; r < resamples; ++r) {
    double numerator = 0.0;
    double denominator = 0.0;
    const StreamKey key{seed, static_cast<uint32_t>(r)};
    for (size_t i = 0; i < count; ++i) {
      const double u = Uniform(key, {static_cast<uint32_t>(i), Purpose::kExplore});
      const size_t pick = static_cast<size_t>(u * static_cast<double>(count));
      numerator += numerators[pick];
      denominator += denominators[pick];
    }
    if (denominator != 0) ratios.push_back(numerator / denominator);
  }
  if (ratios.empty()) return {ratio, ratio};
  std::sort(ratios.begin(), ratios.end());
  const auto percentile = [&](double p) {
    return ratios[static_cast<size_t>(p * static_cast<double>(ratios.size() - 1) + 0.5)];
  };
  return {percentile(0.025), percentile(0.975)};
}

}  // namespace paceline
