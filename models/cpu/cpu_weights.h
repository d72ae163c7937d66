// The fast engine's weights: matrices packed for its kernels, norms as floats.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "models/cpu/packed_matrix.h"
#include "models/language_model.h"
#include "models/weight_source.h"

namespace paceline::cpu {

// Shapes: H hidden, Q query heads * head size, K key-value heads * head size, F feed-forward.
struct LayerWeights {
  std::vector<float> attention_norm;  // [H]
  PackedMatrix query;                 // [Q, H]
  PackedMatrix key;                   // [K, H]
  PackedMatrix value;                 // [K, H]
  PackedMatrix attention_out;         // [H, Q]
  std::vector<float> feed_norm;       // [H]
  PackedMatrix gate;                  // [F, H]
  PackedMatrix up;                    // [F, H]
  PackedMatrix down;                  // [H, F]
};

struct Weights {
  std::shared_ptr<const PackedMatrix> embedding;  // [V, H]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;            // [H]
  std::shared_ptr<const PackedMatrix> head;  // [V, H]; the embedding if the file has none.

  PassWork work() const;
};

// Errors: kNotFound or kDataLoss naming the tensor, kResourceExhausted.
absl::StatusOr<Weights> LoadWeights(const WeightSource& source);

}  // namespace paceline::cpu
