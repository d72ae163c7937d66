// Which instruction set the fast engine's kernels run in.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/cpu/kernels.h"

namespace paceline::cpu {

// Kernels that this machine can run, the best first; the last is "portable".
std::vector<const Kernels*> RunnableKernels();

// The kernels of `name`, or the best for an empty name. kInvalidArgument naming the runnable ones.
absl::StatusOr<const Kernels*> KernelsNamed(const std::string& name);

}  // namespace paceline::cpu
