#include "models/model_config.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr int32_t kMaxLayers = 4096;
constexpr int32_t kMaxHeadDim = 1 << 14;
constexpr int32_t kMaxSize = 1 << 24;  // Of any dimension.

absl::Status Expect(bool holds, absl::string_view field, absl::string_view expected, int64_t got) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

absl::Status ExpectSize(absl::string_view field, int64_t size, int64_t most) {
  return Expect(size >= 1 && size <= most, field, absl::StrCat("a number in [1, ", most, "]"),
                size);
}

absl::Status CheckFactor(absl::string_view field, float factor) {
  if (factor > 0 && factor < 1e12f) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": expected a number in (0, 1e12), got ", factor));
}

absl::Status CheckRotary(const Rotary& rotary, int32_t head_dim) {
  if (!(rotary.base > 1 && rotary.base < 1e12f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary base: expected a number in (1, 1e12), got ", rotary.base));
  }
  PACELINE_RETURN_IF_ERROR(Expect(std::ssize(rotary.frequencies) == head_dim / 2,
                                  "rotary frequencies", absl::StrCat(head_dim / 2),
                                  std::ssize(rotary.frequencies)));
  for (const double frequency : rotary.frequencies) {
    if (frequency >= 0 && frequency < 1e6) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rotary frequency: expected a number in [0, 1e6), got ", frequency));
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const ModelConfig& config) {
  PACELINE_RETURN_IF_ERROR(Expect(std::ssize(config.layers) == config.num_layers,
                                  "settings of layers", absl::StrCat(config.num_layers),
                                  std::ssize(config.layers)));
  const auto kinds = std::max<int64_t>(1, std::ssize(config.rotaries));
  for (const LayerConfig& layer : config.layers) {
    PACELINE_RETURN_IF_ERROR(
        Expect(layer.window >= 0, "sliding window", "a number of positions", layer.window));
    PACELINE_RETURN_IF_ERROR(Expect(layer.rotary >= 0 && layer.rotary < kinds, "rotary of a layer",
                                    absl::StrCat("a number in [0, ", kinds, ")"), layer.rotary));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int32_t> ModelConfig::Windows() const {
  std::vector<int32_t> windows;
  for (const LayerConfig& layer : layers) {
    if (std::find(windows.begin(), windows.end(), layer.window) == windows.end()) {
      windows.push_back(layer.window);
    }
  }
  return windows;
}

absl::Status ModelConfig::ValidateSizes() const {
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of layers", num_layers, kMaxLayers));
  PACELINE_RETURN_IF_ERROR(ExpectSize("hidden size", hidden_size, kMaxSize));
  PACELINE_RETURN_IF_ERROR(ExpectSize("feed-forward size", feed_forward_size, kMaxSize));
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of heads", num_heads, hidden_size));
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of key-value heads", num_kv_heads, num_heads));
  PACELINE_RETURN_IF_ERROR(Expect(num_heads % num_kv_heads == 0, "number of key-value heads",
                                  absl::StrCat("a divisor of ", num_heads), num_kv_heads));
  PACELINE_RETURN_IF_ERROR(
      ExpectSize("head size", head_dim, std::min(kMaxHeadDim, kMaxSize / num_heads)));
  PACELINE_RETURN_IF_ERROR(Expect(head_dim % 2 == 0, "head size", "an even number", head_dim));
  PACELINE_RETURN_IF_ERROR(ExpectSize("context length", context_length, kMaxSize));
  return ExpectSize("vocabulary size", vocab_size, kMaxSize);
}

absl::Status ModelConfig::Validate() const {
  PACELINE_RETURN_IF_ERROR(ValidateSizes());
  if (!(norm_epsilon > 0 && norm_epsilon < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm epsilon: expected a number in (0, 1), got ", norm_epsilon));
  }
  PACELINE_RETURN_IF_ERROR(CheckFactor("embedding scale", embedding_scale));
  PACELINE_RETURN_IF_ERROR(CheckFactor("attention scale", attention_scale));
  for (const Rotary& rotary : rotaries) PACELINE_RETURN_IF_ERROR(CheckRotary(rotary, head_dim));
  return CheckLayers(*this);
}

}  // namespace paceline
