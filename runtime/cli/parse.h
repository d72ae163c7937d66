// Strict readers of option values: the whole text must be the value.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "sampling/draw.h"

namespace paceline::cli {

// `4x`, `nan`, `1e999`, the empty text and what does not fit the type are kInvalidArgument saying
// what is expected and what came. Instances: int32_t, uint64_t, double.
template <typename Number>
absl::StatusOr<Number> ParseNumber(const std::string& text);

// "1,2,3"; blanks around a number are allowed. At least one.
absl::StatusOr<std::vector<int32_t>> ParseIds(const std::string& text);

// "ID=BIAS,ID=BIAS"; a bias of -inf bans the token.
absl::StatusOr<std::vector<std::pair<int32_t, double>>> ParseLogitBias(const std::string& text);

// "inverse_cdf" or "gumbel".
absl::StatusOr<DrawMethod> ParseDrawMethod(const std::string& text);

}  // namespace paceline::cli
