// Models that have names.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace paceline::cli {

// A known name becomes the path of its file in the cache folder; anything else stays. kNotFound,
// saying how to install it, if it is not there.
absl::Status ResolveModelName(std::string& model);

}  // namespace paceline::cli
