// Model folders of Hugging Face: config.json, safetensors, tokenizer.json and the files beside
// them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/weight_source.h"

namespace paceline {

// Opens a folder. Tensors are views of the mapped files, but for matrices that are stored
// transposed (GPT-2) and norms that are stored without their one (Gemma): those are copies. Errors:
// those of OpenModel; the message names the file and the part.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenFolder(const std::string& folder);

}  // namespace paceline
