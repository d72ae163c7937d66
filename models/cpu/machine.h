// What this machine can do at most: the limits that passes of the fast engine are held against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace paceline::cpu {

struct MachineLimits {
  double stream_gb_per_s = 0;      // Reading 256 MB front to back, all threads together.
  double multiply_gmac_per_s = 0;  // int8 x 4 bits, 8 rows, everything in the first-level caches.
};

// Medians of several tries; takes about a second. `isa` and `num_threads` as in ModelOptions.
// Errors: kInvalidArgument naming the option, kResourceExhausted (memory).
absl::StatusOr<MachineLimits> MeasureMachine(const std::string& isa, int32_t num_threads);

// Threads that ModelOptions::num_threads stands for.
int32_t ThreadsFor(int32_t num_threads);

// Instruction sets that run here, the one chosen by default first.
std::vector<std::string> RunnableIsas();

}  // namespace paceline::cpu
