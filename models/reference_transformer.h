// The reference engine: a plain float32 transformer in ATen, the oracle of every other engine.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/weight_source.h"

namespace paceline {

struct ReferenceOptions {
  std::string device = "cpu";  // "cpu", "cuda" or "cuda:N".
  int32_t context_length = 0;  // Positions a sequence may have; 0 takes the model's own.
  int64_t max_positions = 0;  // Cache positions of all sequences together; 0 is 4 sequences' worth.
  int32_t num_threads = 0;    // Threads of one operator; 0 keeps libtorch's choice. Process-wide.
};

// Loads the weights, dequantised to float32. The file need not outlive the model.
// Passes run at a fixed padded width, so that a row's logits do not depend on how many rows share
// the pass with it (up to the rounding of ATen's kernels at different places of one tile). Errors:
// kInvalidArgument (options), kNotFound or kDataLoss (tensors), kFailedPrecondition naming what is
// missing (device), kUnimplemented (architecture; or built without libtorch).
absl::StatusOr<std::unique_ptr<LanguageModel>> LoadReferenceModel(const WeightSource& weights,
                                                                  const ReferenceOptions& options);

}  // namespace paceline
