#include "sampling/draw.h"

#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

template <typename Real>
int64_t InverseCdfOf(std::span<const Real> weights, double u) {
  double total = 0;
  for (Real weight : weights) total += weight;
  const double threshold = u * total;
  double sum = 0;
  int64_t last_positive = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0)) continue;
    sum += weights[i];
    last_positive = static_cast<int64_t>(i);
    if (sum > threshold) break;
  }
  return last_positive;
}

absl::Status CheckWeights(std::span<const double> weights) {
  bool positive = false;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || std::isinf(weights[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weights[", i, "]: expected a finite number of 0 or more, got ", weights[i]));
    }
    positive |= weights[i] > 0;
  }
  if (positive) return absl::OkStatus();
  return absl::FailedPreconditionError("no_token_left: every token is masked");
}

}  // namespace

int64_t InverseCdf(std::span<const float> weights, double u) { return InverseCdfOf(weights, u); }
int64_t InverseCdf(std::span<const double> weights, double u) { return InverseCdfOf(weights, u); }

absl::StatusOr<int32_t> DrawToken(std::span<const double> weights, double u) {
  if (!(u >= 0 && u < 1)) {
    return absl::InvalidArgumentError(absl::StrCat("u: expected a number in [0, 1), got ", u));
  }
  PACELINE_RETURN_IF_ERROR(CheckWeights(weights));
  return static_cast<int32_t>(InverseCdf(weights, u));
}

absl::StatusOr<int32_t> DrawGumbel(std::span<const double> weights,
                                   std::span<const double> uniforms) {
  if (uniforms.size() != weights.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "uniforms: expected ", weights.size(), " entries, one a weight, got ", uniforms.size()));
  }
  PACELINE_RETURN_IF_ERROR(CheckWeights(weights));
  double best_key = -std::numeric_limits<double>::infinity();
  int32_t best = -1;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(uniforms[i] > 0 && uniforms[i] < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("uniforms[", i, "]: expected a number in (0, 1), got ", uniforms[i]));
    }
    const double key = std::log(weights[i]) - std::log(-std::log(uniforms[i]));
    if (key > best_key) {
      best_key = key;
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

}  // namespace paceline
