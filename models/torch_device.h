// Names of devices, and loading libtorch's CUDA side on demand.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/statusor.h"

namespace paceline {

// "cpu", "cuda" or "cuda:N". For CUDA loads libtorch_cuda from libtorch's own folder;
// kFailedPrecondition naming what is missing if that fails or no GPU answers. kInvalidArgument for
// another name.
absl::StatusOr<at::Device> OpenDevice(const std::string& name);

}  // namespace paceline
