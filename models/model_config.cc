#include "models/model_config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr int32_t kMaxLayers = 4096;
constexpr int32_t kMaxSize = 1 << 24;  // Of any dimension.

absl::Status Expect(bool holds, absl::string_view field, absl::string_view expected, int64_t got) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected ", expected, ", got ", got));
}

absl::Status ExpectSize(absl::string_view field, int64_t size, int64_t most) {
  return Expect(size >= 1 && size <= most, field, absl::StrCat("a number in [1, ", most, "]"),
                size);
}

}  // namespace

absl::Status ModelConfig::Validate() const {
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of layers", num_layers, kMaxLayers));
  PACELINE_RETURN_IF_ERROR(ExpectSize("hidden size", hidden_size, kMaxSize));
  PACELINE_RETURN_IF_ERROR(ExpectSize("feed-forward size", feed_forward_size, kMaxSize));
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of heads", num_heads, hidden_size));
  PACELINE_RETURN_IF_ERROR(ExpectSize("number of key-value heads", num_kv_heads, num_heads));
  PACELINE_RETURN_IF_ERROR(Expect(num_heads % num_kv_heads == 0, "number of key-value heads",
                                  absl::StrCat("a divisor of ", num_heads), num_kv_heads));
  PACELINE_RETURN_IF_ERROR(ExpectSize("head size", head_dim, kMaxSize / num_heads));
  PACELINE_RETURN_IF_ERROR(Expect(head_dim % 2 == 0, "head size", "an even number", head_dim));
  PACELINE_RETURN_IF_ERROR(ExpectSize("context length", context_length, kMaxSize));
  PACELINE_RETURN_IF_ERROR(ExpectSize("vocabulary size", vocab_size, kMaxSize));
  if (!(rms_norm_epsilon > 0 && rms_norm_epsilon < 1) || !(rope_base > 1 && rope_base < 1e12f)) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm epsilon and rotary base: expected numbers in (0, 1) and (1, 1e12), got ",
                     rms_norm_epsilon, " and ", rope_base));
  }
  return absl::OkStatus();
}

}  // namespace paceline
