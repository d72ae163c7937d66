// How a model is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "models/model_config.h"

namespace paceline {

struct ModelOptions {
  std::string engine = "";      // "fast" or "reference"; empty chooses by device.
  std::string device = "cpu";   // "cpu", "cuda" or "cuda:N"; reference engine.
  std::string isa = "";         // Of the fast engine, one of cpu::RunnableIsas(); empty is the best here.
  int32_t context_length = 0;   // Positions a sequence may have; 0 takes the model's own.
  int64_t max_positions = 0;    // Cache positions of all sequences together; 0 is 4 sequences' worth.
  int32_t num_threads = 0;      // 0: one for each processor.

  int64_t CachePositions(const ModelConfig& config) const {
    return max_positions > 0 ? max_positions : int64_t{4} * config.context_length;
  }
};

// `config` with the context that the options ask for. kInvalidArgument naming the option if it is
// not within the model's own, or if the number of threads is out of range.
absl::StatusOr<ModelConfig> ConfigFor(const ModelConfig& config, const ModelOptions& options);

}  // namespace paceline
