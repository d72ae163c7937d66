// What is wrong with a row of logits, in the same words wherever a row is read.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace paceline {

// kInvalidArgument, `nan_logit` or `inf_logit`, naming the id.
absl::Status BadLogit(int64_t id, double logit);

// kFailedPrecondition `no_token_left`.
absl::Status NoTokenLeft();

}  // namespace paceline
