// Shape and variants of a decoder-only transformer. One struct for every architecture: what differs
// between families is data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace paceline {

struct ModelConfig {
  std::string architecture;  // The file's own name, e.g. "llama".
  int32_t num_layers = 0;
  int32_t hidden_size = 0;
  int32_t feed_forward_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;  // Divides num_heads.
  int32_t head_dim = 0;
  int32_t context_length = 0;  // Positions the model was made for.
  int32_t vocab_size = 0;      // Rows of the embedding; the head's width.
  float rms_norm_epsilon = 1e-5f;
  float rope_base = 10000.0f;
  // True where the file stores rotary pairs as neighbouring rows (GGUF llama); false where the two
  // halves of a head are rotated against each other.
  bool rope_interleaved = false;

  // kInvalidArgument naming the field unless all sizes are positive, bounded and consistent.
  absl::Status Validate() const;
};

}  // namespace paceline
