// Figures of `paceline bench`: samples in, table or JSON out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "runtime/cli/options.h"
#include "runtime/report.h"

namespace paceline::cli {

// One prompt, decoded both ways in one run.
struct BenchSample {
  int32_t run = 0;
  size_t prompt = 0;  // Number of the prompt.
  std::string category;
  Telemetry plain;
  Telemetry draft;
  bool same_tokens = true;
};

// Tokens per second over the runs.
struct Speed {
  double median = 0;
  Interval range;  // Slowest and fastest run.
};

// A category, or all prompts together.
struct BenchGroup {
  std::string name;
  int64_t num_prompts = 0;
  int64_t num_runs = 0;
  Speed plain;
  Speed draft;
  Telemetry telemetry;         // Of the draft, first run: runs differ in time only.
  Interval acceptance_length;  // 95 %, prompts resampled.
  int64_t num_differing = 0;   // Prompts whose tokens differ between the two ways.

  std::optional<double> Speedup() const;  // Ratio of the medians.
};

struct BenchReport {
  RunInfo run;
  int32_t max_tokens = 0;
  SamplingOptions sampling;
  std::string rule;
  uint64_t seed = 0;
  std::vector<BenchGroup> groups;  // Categories in order of appearance, then `all`.

  bool greedy() const { return sampling.temperature == 0; }
};

// Groups of `samples`. A last run that is not complete is left out unless it is the only one.
std::vector<BenchGroup> Summarise(std::span<const BenchSample> samples, uint64_t seed);

std::string BenchText(const BenchReport& report);
Json BenchJson(const BenchReport& report);

// Model name of the processor as Linux tells it; "unknown" elsewhere.
std::string CpuName();

}  // namespace paceline::cli
