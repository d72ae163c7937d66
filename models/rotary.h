// Rotary position embeddings: how far each pair of a head turns from one position to the next.
//
// Source: RoFormer (Su et al. 2021), section 3.2.2; linear scaling: position interpolation (Chen et
// al. 2023); llama3: the frequency bands that Llama 3.1 was released with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace paceline {

struct Rotary {
  float base = 10000.0f;
  std::string scaling = "none";     // For people: "none", "linear 8", "llama3 8", "factors".
  std::vector<double> frequencies;  // [D / 2] radians a position, the fastest first.
};

// Pair i of a head of `head_dim` turns by base^(-2i / D).
Rotary PlainRotary(float base, int32_t head_dim);

// Every frequency divided by `factor`.
Rotary ScaledLinearly(Rotary rotary, double factor);

struct Llama3Scaling {
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_context = 8192;
};

// Frequencies whose wavelength is longer than original_context / low_frequency_factor are divided by
// the factor, those shorter than original_context / high_frequency_factor stay, those between are
// mixed by how many waves the original context held.
Rotary ScaledAsLlama3(Rotary rotary, const Llama3Scaling& scaling);

// Frequency i divided by factors[i]; as many as there are frequencies.
Rotary DividedBy(Rotary rotary, std::span<const float> factors);

}  // namespace paceline
