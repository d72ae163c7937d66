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
                                std::span<const int32_t> tokens) {
  const int32_t length = model.cache().Length(sequence);
  Stopwatch clock;
  PACELINE_RETURN_IF_ERROR(
      model.Forward({{{sequence, tokens, {}, RowWish::kAll}}}).status());
  const double ms = clock.Lap();
  PACELINE_RETURN_IF_ERROR(model.cache().Truncate(sequence, length));
  return ms;
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
          TimePass(model, sequence, std::span(tokens).first(options.rows[i])));
      if (run >= 0) times[i].push_back(ms);
    }
    if (done()) break;
  }
  if (times.front().empty()) return absl::CancelledError("stopped before a round was measured");
  std::vector<PassCost> costs;
  for (size_t i = 0; i < times.size(); ++i) {
    const auto [low, high] = std::minmax_element(times[i].begin(), times[i].end());
    costs.push_back({options.rows[i], Median(times[i]), {*low, *high}});
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

}  // namespace paceline
