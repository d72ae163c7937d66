// The reference engine: a plain float32 transformer in ATen, the oracle of every other engine.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/model_options.h"
#include "models/weight_source.h"

namespace paceline {

// Loads the weights, dequantised to float32. The file need not outlive the model.
// Passes run at a fixed padded width, so that a row's logits do not depend on how many rows share
// the pass with it (up to the rounding of ATen's kernels at different places of one tile). Errors:
// kInvalidArgument (options), kNotFound or kDataLoss (tensors), kFailedPrecondition naming what is
// missing (device), kUnimplemented (architecture; or built without libtorch).
absl::StatusOr<std::unique_ptr<LanguageModel>> LoadReferenceModel(const WeightSource& weights,
                                                                  const ModelOptions& options);

}  // namespace paceline
