// Rows that benchmarks work on.
#pragma once

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace paceline {

// Peaked as a language model's rows are: a few tokens hold most of the mass.
inline std::vector<float> PeakedLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<float> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    logits.push_back(static_cast<float>(-2.5 * std::log(-std::log(u))));
  }
  return logits;
}

// Each iteration read one row of range(0) floats.
inline void CountRow(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) *
                          static_cast<int64_t>(sizeof(float)));
}

}  // namespace paceline
