// The reference engine's weights, dequantised to float32 tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "models/weight_source.h"

namespace paceline {

// Shapes: H hidden, Q heads * head size, K key-value heads * head size, F feed-forward, V
// vocabulary.
struct LayerWeights {
  at::Tensor attention_norm;   // [H]
  at::Tensor query_key_value;  // [Q + 2K, H], rows of query, key, value
  at::Tensor attention_out;    // [H, Q]
  at::Tensor feed_norm;        // [H]
  at::Tensor gate_up;          // [2F, H], rows of gate, up
  at::Tensor down;             // [H, F]
};

struct ReferenceWeights {
  at::Tensor embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  at::Tensor output_norm;  // [H]
  at::Tensor head;         // [V, H]; the embedding if the file has none.
};

// Errors: kNotFound or kDataLoss naming the tensor. Throws what libtorch throws.
absl::StatusOr<ReferenceWeights> LoadReferenceWeights(const WeightSource& source,
                                                      const at::Device& device);

}  // namespace paceline
