// Makes a smaller model of a model's first layers.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace paceline {

// Writes to `out` the GGUF `in` with its first `num_layers` layers: metadata byte for byte but for
// the number of layers, tensors as they are stored. A real second model, with real rejections, for
// any target.
//
// `out` appears whole or not at all: it is written beside its place and renamed. An existing file
// is replaced. Errors: those of OpenModel; kInvalidArgument if num_layers is not in [1, layers of
// the model], both paths are one file or `out` is no file; what the system says where writing
// fails.
absl::Status SliceModel(const std::string& in, const std::string& out, int32_t num_layers);

}  // namespace paceline
