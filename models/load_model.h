// The door to the engines: a model file's weights become a LanguageModel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/model_options.h"
#include "models/weight_source.h"

namespace paceline {

// Loads the weights into the engine that `options` names: "fast" (cpu/cpu_transformer.h) or
// "reference" (reference_transformer.h). An empty name is the fast engine on processors and the
// reference engine on other devices. The file need not outlive the model.
// Errors: kInvalidArgument naming the option, and those of the engine.
absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(const WeightSource& weights,
                                                         const ModelOptions& options);

}  // namespace paceline
