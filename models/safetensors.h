// Reader of safetensors files: a JSON header that places tensors in the bytes behind it.
//
// Source: the format's description in the safetensors repository.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/weight_source.h"

namespace paceline {

// The tensors of a file, as they are named there, in the order of their places; views into `bytes`.
// F32, F16 and BF16. Every range is checked: as long as the shape says, inside the file, and one
// behind the other without overlap or gap.
//
// Errors: kDataLoss naming the file, the tensor or the header, what is expected and what came;
// kUnimplemented for other types. Never allocates more than a few times the header's size.
absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const uint8_t> bytes,
                                                         const std::string& file);

}  // namespace paceline
