#include "base/bad_row.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace paceline {

absl::Status BadLogit(int64_t id, double logit) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::isnan(logit) ? "nan_logit" : "inf_logit", ": logits[", id,
                   "]: expected a finite number or -inf, got ", logit));
}

absl::Status NoTokenLeft() {
  return absl::FailedPreconditionError("no_token_left: every token is masked");
}

}  // namespace paceline
