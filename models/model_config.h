// Shape and variants of a decoder-only transformer. One struct for every architecture: what differs
// between families is data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/rotary.h"

namespace paceline {

enum class NormKind {
  kRms,    // x / sqrt(mean(x^2) + epsilon) * weight
  kLayer,  // (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
};

enum class Activation {
  kSilu,  // x / (1 + exp(-x))
  kGelu,  // x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))): GELU by its tanh form
};

// What layers may differ in.
struct LayerConfig {
  int32_t window = 0;  // A row sees the last `window` positions, its own included; 0: all of them.
  int32_t rotary = 0;  // Index into ModelConfig::rotaries, if there are any.
};

struct ModelConfig {
  std::string architecture;  // The family's name, e.g. "llama".
  int32_t num_layers = 0;
  int32_t hidden_size = 0;
  int32_t feed_forward_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // Divides num_heads.
  int32_t head_dim = 0;
  int32_t context_length = 0;  // Positions the model was made for.
  int32_t vocab_size = 0;      // Rows of the embedding; the head's width.

  NormKind norm = NormKind::kRms;
  float norm_epsilon = 1e-5f;
  Activation activation = Activation::kSilu;
  bool gated = true;  // down(activation(gate(x)) * up(x)); else down(activation(up(x))).
  bool query_key_norm = false;  // Heads of queries and keys are RMS-normed before they turn.
  bool post_norms = false;  // What attention and feed-forward add is normed as well.
  bool attention_bias = false;     // Of queries, keys and values.
  bool output_bias = false;        // Of attention's output.
  bool feed_forward_bias = false;  // Of its two or three matrices.
  bool tied_head = true;           // The embedding is the head.
  bool learned_positions = false;  // A row of its own for each position is added to the embedding.
  float embedding_scale = 1.0f;    // Rows of the embedding times this.
  float attention_scale = 1.0f;    // Scores are query . key times this.

  // True where rotary pairs are neighbouring rows of the matrices (GGUF llama); false where the two
  // halves of a head are rotated against each other.
  bool rope_interleaved = false;
  std::vector<Rotary> rotaries;     // None: the model does not turn queries and keys.
  std::vector<LayerConfig> layers;  // [num_layers]

  // kInvalidArgument naming the field unless all sizes are positive, bounded and consistent; the
  // second one looks at everything.
  absl::Status ValidateSizes() const;
  absl::Status Validate() const;

  // The different windows of the layers, in the order of their first layers.
  std::vector<int32_t> Windows() const;
};

}  // namespace paceline
