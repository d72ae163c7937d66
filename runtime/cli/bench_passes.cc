// `paceline bench --passes`: what a pass costs by its rows, beside what the machine can do.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "models/cpu/machine.h"
#include "models/load_model.h"
#include "models/weight_source.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/interrupt.h"
#include "runtime/cli/output.h"
#include "runtime/pass_curve.h"
#include "runtime/report.h"

namespace paceline::cli {
namespace {

constexpr int32_t kPromptTokens = 512;
constexpr int32_t kPromptRuns = 7;

struct PassReport {
  std::string model;
  std::string engine;
  PassCurveOptions options;
  PassWork work;
  cpu::MachineLimits limits;
  std::vector<PassCost> costs;
  PassCost prompt;

  double PromptTokensPerSecond() const { return prompt.rows * 1e3 / prompt.ms; }
  double GbPerSecond(const PassCost& cost) const {
    return static_cast<double>(work.weight_bytes) / cost.ms / 1e6;
  }
  double GmacPerSecond(const PassCost& cost) const {
    return static_cast<double>(work.multiplications) * cost.rows / cost.ms / 1e6;
  }
  // Of the quicker of the two: no pass takes less than its reading or its arithmetic.
  double ShareOfLimit(const PassCost& cost) const {
    return std::max(GbPerSecond(cost) / limits.stream_gb_per_s,
                    GmacPerSecond(cost) / limits.multiply_gmac_per_s);
  }
  double Ratio(const PassCost& cost) const { return cost.ms / costs.front().ms; }
};

Json ReportJson(const PassReport& report) {
  Json passes = Json::array();
  for (const PassCost& cost : report.costs) {
    passes.push_back({{"rows", cost.rows},
                      {"ms", cost.ms},
                      {"ms_min", cost.range.low},
                      {"ms_max", cost.range.high},
                      {"ratio_to_first", report.Ratio(cost)},
                      {"gb_per_s", report.GbPerSecond(cost)},
                      {"gmac_per_s", report.GmacPerSecond(cost)},
                      {"share_of_limit", report.ShareOfLimit(cost)}});
  }
  return {{"model", report.model},
          {"engine", report.engine},
          {"cached_positions", report.options.context},
          {"runs", report.options.runs},
          {"weight_bytes", report.work.weight_bytes},
          {"multiplications_per_row", report.work.multiplications},
          {"stream_gb_per_s", report.limits.stream_gb_per_s},
          {"multiply_gmac_per_s", report.limits.multiply_gmac_per_s},
          {"passes", passes},
          {"prompt",
           {{"tokens", report.prompt.rows},
            {"ms", report.prompt.ms},
            {"ms_min", report.prompt.range.low},
            {"ms_max", report.prompt.range.high},
            {"tokens_per_second", report.PromptTokensPerSecond()}}}};
}

std::string ReportText(const PassReport& report) {
  std::string text = absl::StrFormat(
      "%s, %d cached positions, medians of %d passes (quickest..slowest)\n"
      "a pass reads %.1f MB of weights; a row takes %.1f million multiplications\n"
      "this machine streams %.1f GB/s and multiplies %.0f GMAC/s (int8 x 4 bits)\n\n",
      report.engine, report.options.context, report.options.runs,
      static_cast<double>(report.work.weight_bytes) / 1e6,
      static_cast<double>(report.work.multiplications) / 1e6, report.limits.stream_gb_per_s,
      report.limits.multiply_gmac_per_s);
  text += absl::StrFormat("%6s  %-26s %8s %8s %8s %9s\n", "rows", "ms", "x first", "GB/s", "GMAC/s",
                          "of limit");
  for (const PassCost& cost : report.costs) {
    text += absl::StrFormat(
        "%6d  %-26s %8.2f %8.1f %8.1f %7.0f %%\n", cost.rows,
        absl::StrFormat("%.2f (%.2f..%.2f)", cost.ms, cost.range.low, cost.range.high),
        report.Ratio(cost), report.GbPerSecond(cost), report.GmacPerSecond(cost),
        100 * report.ShareOfLimit(cost));
  }
  text += absl::StrFormat("\na prompt of %d tokens takes %.0f ms (%.0f..%.0f): %.0f tokens/s\n",
                          report.prompt.rows, report.prompt.ms, report.prompt.range.low,
                          report.prompt.range.high, report.PromptTokensPerSecond());
  return text;
}

absl::StatusOr<PassReport> Measure(const BenchOptions& options) {
  const GenerateOptions& generate = options.generate;
  PACELINE_ASSIGN_OR_RETURN(const auto weights, OpenModel(generate.model));
  PACELINE_ASSIGN_OR_RETURN(const auto model, LoadModel(*weights, generate.engine));
  PassReport report;
  report.model = generate.model;
  report.engine = model->Describe();
  report.options.context = options.cached_positions;
  if (options.runs) report.options.runs = *options.runs;
  report.work = model->work();
  if (!generate.quiet) Note("measuring the machine ...\n");
  PACELINE_ASSIGN_OR_RETURN(report.limits, cpu::MeasureMachine(generate.engine.isa,
                                                               generate.engine.num_threads));
  if (!generate.quiet) Note("measuring a prompt and passes ...\n");
  PACELINE_ASSIGN_OR_RETURN(report.prompt, MeasurePrompt(*model, kPromptTokens,
                                                         std::min(report.options.runs, kPromptRuns),
                                                         Interrupted));
  PACELINE_ASSIGN_OR_RETURN(report.costs, MeasurePasses(*model, report.options, Interrupted));
  return report;
}

}  // namespace

int RunBenchPasses(BenchOptions options) {
  if (const absl::Status status = ResolveModel(options.generate.model); !status.ok()) {
    return ReportStatus(status);
  }
  CatchInterrupts();
  const absl::StatusOr<PassReport> report = Measure(options);
  if (!report.ok()) {
    return Interrupted() ? kExitInterrupted : ReportStatus(NamingOptions(report.status()));
  }
  Output out;
  out.Write(options.generate.json ? JsonText(ReportJson(*report)) + "\n" : ReportText(*report));
  const int code = ReportStatus(out.status());
  return Interrupted() ? kExitInterrupted : code;
}

}  // namespace paceline::cli
