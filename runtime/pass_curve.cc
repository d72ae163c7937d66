#include "runtime/pass_curve.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"

namespace paceline {
namespace {

absl::Status CheckOptions(const LanguageModel& model, const PassCurveOptions& options) {
  const int32_t widest = *std::max_element(options.rows.begin(), options.rows.end());
  if (options.runs < 1) {
    return absl::InvalidArgumentError(absl::StrCat("runs: expected 1 or more, got ", options.runs));
  }
  if (options.context < 0 || options.context + widest > model.context_length()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cached positions: expected a number in [0, ", model.context_length() - widest,
                     "], to leave room for ", widest, " rows, got ", options.context));
  }
  return absl::OkStatus();
}

// Ids that spread over the vocabulary, so that embedding rows are not in a cache.
std::vector<int32_t> SomeTokens(const LanguageModel& model, int32_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(i * 7919 % model.logit_width()));
  }
  return tokens;
}

absl::StatusOr<double> TimePass(LanguageModel& model, SequenceId sequence,
                                std::span<const int32_t> tokens, RowWish wish) {
  const int32_t length = model.cache().Length(sequence);
  Stopwatch clock;
  PACELINE_RETURN_IF_ERROR(model.Forward({{{sequence, tokens, {}, wish}}}).status());
  const double ms = clock.Lap();
  PACELINE_RETURN_IF_ERROR(model.cache().Truncate(sequence, length));
  return ms;
}

PassCost CostOf(int32_t rows, const std::vector<double>& times) {
  const auto [low, high] = std::minmax_element(times.begin(), times.end());
  return {rows, Median(times), {*low, *high}};
}

absl::StatusOr<std::vector<PassCost>> Measure(LanguageModel& model, SequenceId sequence,
                                              const PassCurveOptions& options,
                                              const std::function<bool()>& done) {
  const int32_t widest = *std::max_element(options.rows.begin(), options.rows.end());
  const std::vector<int32_t> tokens = SomeTokens(model, std::max(widest, options.context));
  if (options.context > 0) {
    PACELINE_RETURN_IF_ERROR(
        model
            .Forward({{{sequence, std::span(tokens).first(options.context), {}, RowWish::kNone}}})
            .status());
  }
  std::vector<std::vector<double>> times(options.rows.size());
  for (int32_t run = -1; run < options.runs; ++run) {
    for (size_t i = 0; i < options.rows.size(); ++i) {
      PACELINE_ASSIGN_OR_RETURN(
          const double ms,
          TimePass(model, sequence, std::span(tokens).first(options.rows[i]), RowWish::kAll));
      if (run >= 0) times[i].push_back(ms);
    }
    if (done()) break;
  }
  if (times.front().empty()) return absl::CancelledError("stopped before a round was measured");
  std::vector<PassCost> costs;
  for (size_t i = 0; i < times.size(); ++i) {
    costs.push_back(CostOf(options.rows[i], times[i]));
  }
  return costs;
}

}  // namespace

absl::StatusOr<std::vector<PassCost>> MeasurePasses(LanguageModel& model,
                                                    const PassCurveOptions& options,
                                                    const std::function<bool()>& done) {
  PACELINE_RETURN_IF_ERROR(CheckOptions(model, options));
  const SequenceId sequence = model.cache().Create();
  auto costs = Measure(model, sequence, options, done);
  PACELINE_RETURN_IF_ERROR(model.cache().Release(sequence));
  return costs;
}

absl::StatusOr<PassCost> MeasurePrompt(LanguageModel& model, int32_t num_tokens, int32_t runs,
                                       const std::function<bool()>& done) {
  const std::vector<int32_t> tokens =
      SomeTokens(model, std::min(num_tokens, model.context_length()));
  const SequenceId sequence = model.cache().Create();
  std::vector<double> times;
  absl::Status status;
  while (status.ok() && std::ssize(times) < runs && !done()) {
    const absl::StatusOr<double> ms = TimePass(model, sequence, tokens, RowWish::kNone);
    status = ms.status();
    if (ms.ok()) times.push_back(*ms);
  }
  PACELINE_RETURN_IF_ERROR(model.cache().Release(sequence));
  PACELINE_RETURN_IF_ERROR(status);
  if (times.empty()) return absl::CancelledError("stopped before a prompt was measured");
  return CostOf(static_cast<int32_t>(tokens.size()), times);
}

}  // namespace paceline
