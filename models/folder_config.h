// The config.json of Hugging Face folders.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "models/family.h"
#include "models/json_reader.h"
#include "models/model_config.h"

namespace paceline {

// The family that `model_type` names; kUnimplemented, listing the known ones, for another.
absl::StatusOr<const Family*> FolderFamily(const nlohmann::json& root, const std::string& file);

// Configuration in today's and in older spellings: rope_parameters, or rope_theta with rope_scaling
// and rope_local_base_freq; layer_types, or sliding_window with use_sliding_window,
// max_window_layers or sliding_window_pattern. kDataLoss naming the member that is missing, of
// another type or out of bounds; kUnimplemented for what would be computed wrongly.
absl::StatusOr<ModelConfig> FolderConfig(const nlohmann::json& root, const Family& family,
                                         const std::string& file);

}  // namespace paceline
