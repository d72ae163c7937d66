// The reference engine's weights, dequantised to float32 tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/status/statusor.h"
#include "models/weight_source.h"

namespace paceline {

// Shapes: H hidden, D head size, Q heads * D, K key-value heads * D, F feed-forward, V vocabulary, C
// context. A tensor that the model does not have is undefined.
struct NormWeights {
  at::Tensor weight;  // [H], or [D] of queries and keys
  at::Tensor bias;    // The same, of layer norms.
};

struct MatrixWeights {
  at::Tensor matrix;  // [outputs, inputs]
  at::Tensor bias;    // [outputs]
};

struct LayerWeights {
  NormWeights attention_norm;
  MatrixWeights query_key_value;  // [Q + 2K, H], rows of query, key, value
  NormWeights query_norm;
  NormWeights key_norm;
  MatrixWeights attention_out;  // [H, Q]
  NormWeights attention_post_norm;
  NormWeights feed_norm;
  MatrixWeights gate_up;  // [2F, H], rows of gate, up; [F, H] without a gate
  MatrixWeights down;     // [H, F]
  NormWeights feed_post_norm;
};

struct ReferenceWeights {
  at::Tensor embedding;  // [V, H]
  at::Tensor positions;  // [C, H]
  std::vector<LayerWeights> layers;
  NormWeights output_norm;
  at::Tensor head;  // [V, H]; the embedding if the file has none.
};

// Errors: kNotFound or kDataLoss naming the tensor. Throws what libtorch throws.
absl::StatusOr<ReferenceWeights> LoadReferenceWeights(const WeightSource& source,
                                                      const at::Device& device);

}  // namespace paceline
