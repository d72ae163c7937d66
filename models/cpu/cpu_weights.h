// The fast engine's weights: matrices packed for its kernels, norms as floats.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "models/cpu/packed_matrix.h"
#include "models/language_model.h"
#include "models/weight_source.h"

namespace paceline::cpu {

struct NormWeights {
  std::vector<float> weight;  // Empty: there is no such norm.
  std::vector<float> bias;    // Empty but for layer norms.
};

// A matrix and what is added to its products.
struct Projection {
  PackedMatrix matrix;      // [outputs, inputs]
  std::vector<float> bias;  // [outputs] or empty
};

// Shapes: H hidden, D head size, Q query heads * D, K key-value heads * D, F feed-forward.
struct LayerWeights {
  NormWeights attention_norm;  // [H]
  Projection query;            // [Q, H]
  Projection key;              // [K, H]
  Projection value;            // [K, H]
  NormWeights query_norm;      // [D]
  NormWeights key_norm;        // [D]
  Projection attention_out;    // [H, Q]
  NormWeights attention_post_norm;  // [H]
  NormWeights feed_norm;            // [H]
  Projection gate;                  // [F, H]; empty without a gate
  Projection up;                    // [F, H]
  Projection down;                  // [H, F]
  NormWeights feed_post_norm;       // [H]
};

struct Weights {
  std::shared_ptr<const PackedMatrix> embedding;  // [V, H]
  std::vector<float> positions;                   // [context, H] or empty
  std::vector<LayerWeights> layers;
  NormWeights output_norm;                   // [H]
  std::shared_ptr<const PackedMatrix> head;  // [V, H]; the embedding if the file has none.

  PassWork work() const;
};

// Errors: kNotFound or kDataLoss naming the tensor, kResourceExhausted.
absl::StatusOr<Weights> LoadWeights(const WeightSource& source);

}  // namespace paceline::cpu
