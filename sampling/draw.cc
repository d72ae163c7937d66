#include "sampling/draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bad_row.h"
#include "base/status_macros.h"
#include "sampling/row_math.h"

namespace paceline {
namespace {

constexpr size_t kStride = 64;  // Weights that are passed over by their sum.

template <typename Real>
int64_t InverseCdfOf(std::span<const Real> weights, double u) {
  const double threshold = u * Sum(weights);
  double sum = 0;
  int64_t last_positive = -1;
  for (size_t first = 0; first < weights.size(); first += kStride) {
    const auto part = weights.subspan(first, std::min(kStride, weights.size() - first));
    const double next = sum + Sum(part);
    const bool is_last = first + part.size() == weights.size();
    if (next <= threshold && !is_last) {
      sum = next;
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      if (!(part[i] > 0)) continue;
      sum += part[i];
      last_positive = static_cast<int64_t>(first + i);
      if (sum > threshold) return last_positive;
    }
    // Rounding alone kept the sum from passing here; nothing positive may follow.
    if (last_positive >= 0) return last_positive;
  }
  for (size_t i = weights.size(); i-- > 0;) {
    if (weights[i] > 0) return static_cast<int64_t>(i);
  }
  return -1;
}

// The largest weight / -log(u), whose logarithm is the Gumbel key.
template <typename Real>
int64_t GumbelIndexOf(std::span<const Real> weights, std::span<const int32_t> ids,
                      const StreamKey& key, const NoiseAddress& address) {
  constexpr size_t kTogether = 256;
  std::array<double, kTogether> uniforms;
  int64_t best = -1;
  double best_ratio = 0;
  const auto look = [&](size_t i, double u) {
    // -log(u) >= 1 - u: most tokens are out without a logarithm.
    if (!(weights[i] > best_ratio * (1 - u))) return;
    const double ratio = weights[i] / -std::log(u);
    if (!(ratio > best_ratio)) return;
    best_ratio = ratio;
    best = static_cast<int64_t>(i);
  };
  for (size_t first = 0; first < weights.size(); first += kTogether) {
    const size_t count = std::min(kTogether, weights.size() - first);
    if (ids.empty()) {
      TokenUniforms(key, address, static_cast<uint32_t>(first), std::span(uniforms).first(count));
    } else {
      for (size_t i = 0; i < count; ++i) {
        uniforms[i] = TokenUniform(key, address, static_cast<uint32_t>(ids[first + i]));
      }
    }
    for (size_t i = 0; i < count; ++i) look(first + i, uniforms[i]);
  }
  return best;
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
  return NoTokenLeft();
}

}  // namespace

int64_t InverseCdf(std::span<const float> weights, double u) { return InverseCdfOf(weights, u); }
int64_t InverseCdf(std::span<const double> weights, double u) { return InverseCdfOf(weights, u); }

int64_t GumbelIndex(std::span<const float> weights, std::span<const int32_t> ids,
                    const StreamKey& key, const NoiseAddress& address) {
  return GumbelIndexOf(weights, ids, key, address);
}
int64_t GumbelIndex(std::span<const double> weights, std::span<const int32_t> ids,
                    const StreamKey& key, const NoiseAddress& address) {
  return GumbelIndexOf(weights, ids, key, address);
}

int64_t DrawIndex(std::span<const float> weights, std::span<const int32_t> ids,
                  const StreamKey& key, const NoiseAddress& address, DrawMethod method) {
  if (method == DrawMethod::kGumbel) return GumbelIndexOf(weights, ids, key, address);
  return InverseCdfOf(weights, Uniform(key, address));
}
int64_t DrawIndex(std::span<const double> weights, std::span<const int32_t> ids,
                  const StreamKey& key, const NoiseAddress& address, DrawMethod method) {
  if (method == DrawMethod::kGumbel) return GumbelIndexOf(weights, ids, key, address);
  return InverseCdfOf(weights, Uniform(key, address));
}

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
