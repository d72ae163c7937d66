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

absl::Status ValidateFilters(const SamplingOptions& options) {
  PACELINE_RETURN_IF_ERROR(
      Expect(options.top_k >= -1, "top_k", "0 or -1 (off), or 1 or more", options.top_k));
  PACELINE_RETURN_IF_ERROR(Expect(options.top_p >= 0 && options.top_p <= 1, "top_p",
                                  "a mass in [0, 1] (1 is off)", options.top_p));
  PACELINE_RETURN_IF_ERROR(Expect(options.min_p >= 0 && options.min_p <= 1, "min_p",
                                  "a share in [0, 1] (0 is off)", options.min_p));
  PACELINE_RETURN_IF_ERROR(Expect(options.typical_p > 0 && options.typical_p <= 1, "typical_p",
                                  "a mass in (0, 1] (1 is off)", options.typical_p));
  PACELINE_RETURN_IF_ERROR(Expect(options.top_n_sigma >= 0 && std::isfinite(options.top_n_sigma),
                                  "top_n_sigma", "0 (off) or a positive number",
                                  options.top_n_sigma));
  PACELINE_RETURN_IF_ERROR(Expect(options.epsilon_cutoff >= 0 && options.epsilon_cutoff < 1,
                                  "epsilon_cutoff", "a probability in [0, 1) (0 is off)",
                                  options.epsilon_cutoff));
  PACELINE_RETURN_IF_ERROR(Expect(options.eta_cutoff >= 0 && options.eta_cutoff < 1, "eta_cutoff",
                                  "a probability in [0, 1) (0 is off)", options.eta_cutoff));
  PACELINE_RETURN_IF_ERROR(Expect(options.top_h >= 0 && options.top_h <= 1, "top_h",
                                  "a share in [0, 1] (0 is off)", options.top_h));
  return Expect(options.min_keep >= 1, "min_keep", "1 or more", options.min_keep);
}

absl::Status ValidateDry(const SamplingOptions& options, int32_t vocab_size) {
  PACELINE_RETURN_IF_ERROR(Expect(options.dry_multiplier >= 0 && std::isfinite(options.dry_multiplier),
                                  "dry_multiplier", "0 (off) or a positive number",
                                  options.dry_multiplier));
  PACELINE_RETURN_IF_ERROR(Expect(options.dry_base >= 1 && std::isfinite(options.dry_base),
                                  "dry_base", "a number of 1 or more", options.dry_base));
  PACELINE_RETURN_IF_ERROR(Expect(options.dry_allowed_length >= 0, "dry_allowed_length",
                                  "0 or more", options.dry_allowed_length));
  PACELINE_RETURN_IF_ERROR(Expect(options.dry_penalty_last_n >= -1, "dry_penalty_last_n",
                                  "-1 (all), 0 (off) or more", options.dry_penalty_last_n));
  for (const auto& breaker : options.dry_breakers) {
    PACELINE_RETURN_IF_ERROR(Expect(!breaker.empty(), "dry_breakers", "no empty sequence", 0));
    PACELINE_RETURN_IF_ERROR(ExpectIds(breaker, "dry_breakers", vocab_size));
  }
  return absl::OkStatus();
}

absl::Status ValidateXtc(const SamplingOptions& options) {
  PACELINE_RETURN_IF_ERROR(Expect(options.xtc_probability >= 0 && options.xtc_probability <= 1,
                                  "xtc_probability", "a number in [0, 1] (0 is off)",
                                  options.xtc_probability));
  return Expect(options.xtc_threshold > 0 && options.xtc_threshold <= 1, "xtc_threshold",
                "a probability in (0, 1] (above 0.5 is off)", options.xtc_threshold);
}

absl::Status ValidateMirostat(const SamplingOptions& options) {
  PACELINE_RETURN_IF_ERROR(Expect(options.mirostat_tau >= 0 && std::isfinite(options.mirostat_tau),
                                  "mirostat_tau", "0 (off) or a positive number of bits",
                                  options.mirostat_tau));
  return Expect(options.mirostat_eta >= 0 && options.mirostat_eta <= 1, "mirostat_eta",
                "a number in [0, 1]", options.mirostat_eta);
}

absl::Status ValidateTemperature(const SamplingOptions& options) {
  PACELINE_RETURN_IF_ERROR(Expect(options.temperature >= 0 && std::isfinite(options.temperature),
                                  "temperature", "0 (greedy) or a positive number",
                                  options.temperature));
  PACELINE_RETURN_IF_ERROR(Expect(options.dynatemp_range >= 0 && std::isfinite(options.dynatemp_range),
                                  "dynatemp_range", "0 (off) or a positive number",
                                  options.dynatemp_range));
  return Expect(options.dynatemp_exponent > 0 && std::isfinite(options.dynatemp_exponent),
                "dynatemp_exponent", "a positive number", options.dynatemp_exponent);
}

}  // namespace

absl::Status SamplingOptions::Validate(int32_t vocab_size) const {
  PACELINE_RETURN_IF_ERROR(Expect(vocab_size > 0, "vocab_size", "1 or more", vocab_size));
  PACELINE_RETURN_IF_ERROR(ValidateMasks(*this, vocab_size));
  PACELINE_RETURN_IF_ERROR(ValidatePenalties(*this));
  PACELINE_RETURN_IF_ERROR(Expect(no_repeat_ngram_size >= 0, "no_repeat_ngram_size",
                                  "0 (off) or more", no_repeat_ngram_size));
  PACELINE_RETURN_IF_ERROR(Expect(std::isfinite(guidance_scale), "guidance_scale",
                                  "a finite number (1 is off)", guidance_scale));
  PACELINE_RETURN_IF_ERROR(ValidateDry(*this, vocab_size));
  PACELINE_RETURN_IF_ERROR(ValidateTemperature(*this));
  PACELINE_RETURN_IF_ERROR(ValidateXtc(*this));
  PACELINE_RETURN_IF_ERROR(ValidateMirostat(*this));
  return ValidateFilters(*this);
}

}  // namespace paceline
