// What the fast engine computes in vectors, as a table of functions for each instruction set.
//
// Promise: what a kernel gives for a row is a function of that row alone. It does not depend on how
// many rows are given with it, on their order, or on the range of tiles asked for. Every sum is
// taken in one fixed order; integers within a block of 32 inputs, float32 across blocks.
#pragma once

#include <cstdint>

#include "models/cpu/packed_matrix.h"

namespace paceline::cpu {

// Rows of activations [M, columns], as floats and, where columns are a multiple of 32, as int8 with
// one scale a block: value = scales * quants. Not owned.
struct Activations {
  const float* values;   // [M, columns]
  const int8_t* quants;  // [M, columns] in [-127, 127]
  const float* scales;   // [M, columns / 32]
  const float* sums;     // [M, columns / 32, 3]: scale times the sum of the quants of a block, of its
                         // first 16 and of its last 16
  int64_t columns;
};

// A query head of a row. D is the head size.
struct AttentionHead {
  const float* query;  // [D], times the model's attention scale
  int64_t first;       // It sees the chunk's positions [first, count), at least one.
  int64_t count;
  // Results: the largest score, the sum of exp(score - largest), and the values weighted by the
  // exponentials.
  float* largest;
  float* mass;
  float* weighted;     // [D]
};

inline constexpr int64_t kAttentionChunk = 128;
inline constexpr int64_t kHeadsTogether = 12;

// One chunk of cached positions and the query heads that attend to it: those of a group, of one row
// or of several that see the same positions. P = KvCache::kPageSize.
struct AttentionChunk {
  const AttentionHead* heads;
  int64_t num_heads;
  const uint16_t* const* keys;    // [ceil(largest count / P)] pages of halves [D][P]
  const uint16_t* const* values;  // [ceil(largest count / P)] pages of halves [P][D]
  int64_t head_dim;
  float* queries;  // Scratch [D, kHeadsTogether]
  float* scores;   // Scratch [kHeadsTogether, kAttentionChunk]
};

struct Kernels {
  const char* name;

  // y[m, 16(t - first) .. + 16) = x[m] . W[16t .. 16t + 16) for the tiles [first, last) and rows
  // [0, num_rows). y has rows of `stride` floats; columns of the last tile beyond the matrix are not
  // written.
  void (*multiply)(const PackedMatrix& matrix, const Activations& x, int64_t num_rows,
                   int64_t first_tile, int64_t last_tile, float* y, int64_t stride);
  // One row to int8. A block that holds anything but finite numbers gets a scale of NaN.
  void (*quantise)(const float* values, int64_t columns, int8_t* quants, float* scales,
                   float* sums);
  // y = x / sqrt(mean(x^2) + epsilon) * weight
  void (*rms_norm)(const float* x, const float* weight, int64_t columns, float epsilon, float* y);
  // y = (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t columns,
                     float epsilon, float* y);
  // y = gate / (1 + exp(-gate)) * up
  void (*silu_multiply)(const float* gate, const float* up, int64_t count, float* y);
  // y = gate / (1 + exp(-2 sqrt(2 / pi) (gate + 0.044715 gate^3))) * up, up being 1 if it is null
  void (*gelu_multiply)(const float* gate, const float* up, int64_t count, float* y);
  // y = sum over chunks of exp(largest - the largest of all) * weighted, divided by the same sum of
  // masses; for one head, in the order of the chunks.
  void (*combine)(const float* const* weighted, const float* largest, const float* mass,
                  int64_t num_chunks, int64_t head_dim, float* y);
  void (*to_half)(const float* from, int64_t count, uint16_t* to);
  void (*attend)(const AttentionChunk& chunk);
};

const Kernels& PortableKernels();
const Kernels& Avx2Kernels();
const Kernels& AvxVnniKernels();
const Kernels& Avx512BwKernels();
const Kernels& Avx512VnniKernels();

}  // namespace paceline::cpu
