#include "models/rotary.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {

Rotary PlainRotary(float base, int32_t head_dim) {
  Rotary rotary{base, "none", {}};
  for (int32_t i = 0; i < head_dim / 2; ++i) {
    rotary.frequencies.push_back(std::pow(base, -2.0 * i / head_dim));
  }
  return rotary;
}

Rotary ScaledLinearly(Rotary rotary, double factor) {
  for (double& frequency : rotary.frequencies) frequency /= factor;
  rotary.scaling = absl::StrCat("linear ", factor);
  return rotary;
}

Rotary ScaledAsLlama3(Rotary rotary, const Llama3Scaling& scaling) {
  for (double& frequency : rotary.frequencies) {
    const double waves = scaling.original_context * frequency / (2 * std::numbers::pi);
    if (waves > scaling.high_frequency_factor) continue;
    const double kept = waves < scaling.low_frequency_factor
                            ? 0.0
                            : (waves - scaling.low_frequency_factor) /
                                  (scaling.high_frequency_factor - scaling.low_frequency_factor);
    frequency *= kept + (1 - kept) / scaling.factor;
  }
  rotary.scaling = absl::StrCat("llama3 ", scaling.factor);
  return rotary;
}

Rotary DividedBy(Rotary rotary, std::span<const float> factors) {
  for (size_t i = 0; i < rotary.frequencies.size(); ++i) rotary.frequencies[i] /= factors[i];
  rotary.scaling = "factors";
  return rotary;
}

}  // namespace paceline
