// How far an engine's rows are from the reference engine's, on the same tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "models/language_model.h"

namespace paceline {

struct EngineDifference {
  int64_t num_positions = 0;
  int64_t num_same_argmax = 0;
  std::vector<double> kl;  // KL(reference || engine) of each position, in nats, over `vocab_size`.

  double MeanKl() const;
  double KlQuantile(double share) const;  // In [0, 1].
  double Agreement() const;               // Share of positions with the same argmax.
};

// Feeds `tokens` to both models from an empty cache and adds the difference of every row. Rows of a
// long text are compared in pieces.
// Errors: those of the models; a text beyond a model's context.
absl::Status AddDifference(LanguageModel& reference, LanguageModel& engine, int32_t vocab_size,
                           std::span<const int32_t> tokens, EngineDifference& difference);

}  // namespace paceline
