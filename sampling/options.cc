#include "sampling/options.h"

#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

absl::Status Expect(bool holds, absl::string_view name, absl::string_view expected, double got) {
  if (holds) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected ", expected, ", got ", got));
}

absl::Status ExpectIds(std::span<const int32_t> ids, absl::string_view name, int32_t vocab_size) {
  for (int32_t id : ids) {
    PACELINE_RETURN_IF_ERROR(
        Expect(id >= 0 && id < vocab_size, name, absl::StrCat("ids in [0, ", vocab_size, ")"), id));
  }
  return absl::OkStatus();
}

absl::Status ValidateMasks(const SamplingOptions& options, int32_t vocab_size) {
  for (const auto& [id, bias] : options.logit_bias) {
    PACELINE_RETURN_IF_ERROR(ExpectIds({&id, 1}, "logit_bias", vocab_size));
    PACELINE_RETURN_IF_ERROR(Expect(bias < std::numeric_limits<double>::infinity(), "logit_bias",
                                    "a finite bias or -inf", bias));
  }
  PACELINE_RETURN_IF_ERROR(ExpectIds(options.allowed_ids, "allowed_ids", vocab_size));
  PACELINE_RETURN_IF_ERROR(ExpectIds(options.eos_ids, "eos_ids", vocab_size));
  for (const auto& word : options.bad_words) {
    PACELINE_RETURN_IF_ERROR(Expect(!word.empty(), "bad_words", "no empty sequence", 0));
    PACELINE_RETURN_IF_ERROR(ExpectIds(word, "bad_words", vocab_size));
  }
  return Expect(options.min_tokens >= 0, "min_tokens", "0 or more", options.min_tokens);
}

absl::Status ValidatePenalties(const SamplingOptions& options) {
  const double repetition = options.repetition_penalty;
  PACELINE_RETURN_IF_ERROR(Expect(repetition > 0 && std::isfinite(repetition), "repetition_penalty",
                                  "a number above 0 (1 is off)", repetition));
  PACELINE_RETURN_IF_ERROR(Expect(std::isfinite(options.frequency_penalty), "frequency_penalty",
                                  "a finite number (0 is off)", options.frequency_penalty));
  PACELINE_RETURN_IF_ERROR(Expect(std::isfinite(options.presence_penalty), "presence_penalty",
                                  "a finite number (0 is off)", options.presence_penalty));
  return Expect(options.penalty_last_n >= 0, "penalty_last_n", "0 or more", options.penalty_last_n);
}

}  // namespace

absl::Status SamplingOptions::Validate(int32_t vocab_size) const {
  PACELINE_RETURN_IF_ERROR(Expect(vocab_size > 0, "vocab_size", "1 or more", vocab_size));
  PACELINE_RETURN_IF_ERROR(ValidateMasks(*this, vocab_size));
  PACELINE_RETURN_IF_ERROR(ValidatePenalties(*this));
  PACELINE_RETURN_IF_ERROR(Expect(temperature >= 0 && std::isfinite(temperature), "temperature",
                                  "0 (greedy) or a positive number", temperature));
  PACELINE_RETURN_IF_ERROR(Expect(top_k >= -1, "top_k", "0 or -1 (off), or 1 or more", top_k));
  PACELINE_RETURN_IF_ERROR(
      Expect(top_p >= 0 && top_p <= 1, "top_p", "a mass in [0, 1] (1 is off)", top_p));
  PACELINE_RETURN_IF_ERROR(
      Expect(min_p >= 0 && min_p <= 1, "min_p", "a share in [0, 1] (0 is off)", min_p));
  return Expect(min_keep >= 1, "min_keep", "1 or more", min_keep);
}

}  // namespace paceline
