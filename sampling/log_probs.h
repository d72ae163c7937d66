// Log-probabilities of emitted tokens, as reported to the user (algorithms D.12).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/distribution.h"

namespace paceline {

struct TokenLogProb {
  int32_t token;
  double log_prob;  // Natural logarithm; -inf for a token that a filter removed.
};

// Log-probability of one emitted token and the most likely alternatives at its place.
struct LogProbs {
  TokenLogProb emitted;
  std::vector<TokenLogProb>
      top;  // (value descending, id ascending); the emitted one is added if missing.
};

// Log-softmax of the target's logits as they came from the model, over the first `vocab_size`
// entries.
LogProbs RawLogProbs(std::span<const float> logits, int32_t vocab_size, int32_t token,
                     int32_t num_top);

// Logarithms of the row the token was judged by, after every stage.
LogProbs ProcessedLogProbs(const Distribution<float>& row, int32_t token, int32_t num_top);

// Entropy in bits of the softmax of `logits` over the first `vocab_size` entries.
double RawEntropyBits(std::span<const float> logits, int32_t vocab_size);

}  // namespace paceline
