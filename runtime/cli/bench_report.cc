#include "runtime/cli/bench_report.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace paceline::cli {
namespace {

constexpr int32_t kResamples = 10000;

Speed SpeedOf(const std::map<int32_t, Telemetry>& runs) {
  std::vector<double> speeds;
  for (const auto& [run, telemetry] : runs) {
    speeds.push_back(telemetry.TokensPerSecond().value_or(0));
  }
  const auto [low, high] = std::minmax_element(speeds.begin(), speeds.end());
  return {Median(speeds), {*low, *high}};
}

// The mean acceptance length is (accepted + drafts) / drafts, a ratio of sums over prompts.
Interval LengthInterval(const std::vector<const Telemetry*>& prompts, uint64_t seed) {
  std::vector<double> lengths;
  std::vector<double> drafts;
  for (const Telemetry* telemetry : prompts) {
    lengths.push_back(static_cast<double>(telemetry->num_accepted_tokens + telemetry->num_drafts));
    drafts.push_back(static_cast<double>(telemetry->num_drafts));
  }
  return BootstrapRatio(lengths, drafts, kResamples, seed);
}

BenchGroup GroupOf(std::string name, const std::vector<const BenchSample*>& samples,
                   uint64_t seed) {
  BenchGroup group;
  group.name = std::move(name);
  std::map<int32_t, Telemetry> plain;
  std::map<int32_t, Telemetry> draft;
  std::vector<const Telemetry*> first_run;
  std::set<size_t> differing;
  for (const BenchSample* sample : samples) {
    plain[sample->run].Merge(sample->plain);
    draft[sample->run].Merge(sample->draft);
    if (!sample->same_tokens) differing.insert(sample->prompt);
    if (sample->run == samples.front()->run) first_run.push_back(&sample->draft);
  }
  group.num_prompts = static_cast<int64_t>(first_run.size());
  group.num_runs = static_cast<int64_t>(plain.size());
  group.plain = SpeedOf(plain);
  group.draft = SpeedOf(draft);
  group.telemetry = draft.begin()->second;
  group.acceptance_length = LengthInterval(first_run, seed);
  group.num_differing = static_cast<int64_t>(differing.size());
  return group;
}

std::string Cell(std::optional<double> value, int digits) {
  return value ? absl::StrFormat("%.*f", digits, *value) : "-";
}

std::string SpeedCell(const Speed& speed) {
  return absl::StrFormat("%.1f (%.1f..%.1f)", speed.median, speed.range.low, speed.range.high);
}

std::string LengthCell(const BenchGroup& group) {
  const std::optional<double> length = group.telemetry.MeanAcceptanceLength();
  if (!length) return "-";
  return absl::StrFormat("%.2f (%.2f..%.2f)", *length, group.acceptance_length.low,
                         group.acceptance_length.high);
}

std::string Row(const BenchGroup& group) {
  const std::optional<double> rate = group.telemetry.AcceptanceRate();
  return absl::StrFormat("%-16s %7d  %-22s %-22s %8s  %-18s %8s\n", group.name, group.num_prompts,
                         SpeedCell(group.plain), SpeedCell(group.draft), Cell(group.Speedup(), 2),
                         LengthCell(group), rate ? absl::StrFormat("%.1f %%", *rate * 100) : "-");
}

std::string Header(const BenchReport& report) {
  const SamplingOptions& sampling = report.sampling;
  std::string text = absl::StrCat("model     ", report.run.model, "\n");
  absl::StrAppend(&text, "machine   ", CpuName(), ", ", report.run.engine, ", build ", PACELINE_BUILD_TYPE,
                  "\n");
  absl::StrAppend(&text, "draft     ", report.run.draft, ", up to ", report.run.max_draft_tokens,
                  " tokens a round, rule ", report.rule, "\n");
  absl::StrAppend(&text, "settings  temperature ", sampling.temperature, ", top-k ", sampling.top_k,
                  ", top-p ", sampling.top_p, ", min-p ", sampling.min_p, ", max-tokens ",
                  report.max_tokens, ", seed ", report.seed, "\n");
  return text;
}

Json SpeedJson(const Speed& speed) {
  return {{"median", speed.median}, {"min", speed.range.low}, {"max", speed.range.high}};
}

Json GroupJson(const BenchGroup& group, bool greedy) {
  Json json;
  json["name"] = group.name;
  json["num_prompts"] = group.num_prompts;
  json["num_runs"] = group.num_runs;
  json["plain_tokens_per_second"] = SpeedJson(group.plain);
  json["draft_tokens_per_second"] = SpeedJson(group.draft);
  const std::optional<double> speedup = group.Speedup();
  json["speedup"] = speedup ? Json(*speedup) : Json(nullptr);
  json["mean_acceptance_length_interval"] = {group.acceptance_length.low,
                                             group.acceptance_length.high};
  json["num_differing"] = greedy ? Json(group.num_differing) : Json(nullptr);
  json["speculation"] = TelemetryJson(group.telemetry);
  return json;
}

}  // namespace

std::optional<double> BenchGroup::Speedup() const {
  if (!(plain.median > 0)) return std::nullopt;
  return draft.median / plain.median;
}

std::vector<BenchGroup> Summarise(std::span<const BenchSample> samples, uint64_t seed) {
  if (samples.empty()) return {};
  const auto in_run = [&](int32_t run) {
    return std::count_if(samples.begin(), samples.end(),
                         [&](const BenchSample& sample) { return sample.run == run; });
  };
  const int32_t last = samples.back().run;
  const bool drop_last = in_run(last) < in_run(samples.front().run);
  std::vector<std::string> names;
  std::map<std::string, std::vector<const BenchSample*>> categories;
  std::vector<const BenchSample*> all;
  for (const BenchSample& sample : samples) {
    if (drop_last && sample.run == last) continue;
    all.push_back(&sample);
    auto& category = categories[sample.category];
    if (category.empty()) names.push_back(sample.category);
    category.push_back(&sample);
  }
  std::vector<BenchGroup> groups;
  for (const std::string& name : names) {
    if (names.size() > 1) groups.push_back(GroupOf(name, categories[name], seed));
  }
  groups.push_back(GroupOf("all", all, seed));
  return groups;
}

std::string BenchText(const BenchReport& report) {
  std::string text = Header(report);
  if (report.groups.empty()) return text + "no prompt was completed\n";
  const BenchGroup& all = report.groups.back();
  absl::StrAppend(&text, "runs      ", all.num_runs,
                  ", each prompt without and with the draft in turn\n\n");
  absl::StrAppendFormat(&text, "%-16s %7s  %-22s %-22s %8s  %-18s %8s\n", "category", "prompts",
                        "plain tokens/s", "draft tokens/s", "speed-up", "acceptance length",
                        "accepted");
  for (const BenchGroup& group : report.groups) text += Row(group);
  text +=
      "\ntokens/s: median of the runs (slowest..fastest); speed-up: ratio of the medians; "
      "acceptance length:\ntokens a drafting round gives, bonus included (95 % interval, prompts "
      "resampled); accepted: of drafted tokens\n";
  if (!report.greedy()) return text;
  absl::StrAppend(&text, "identical output at temperature 0: ", all.num_prompts - all.num_differing,
                  " of ", all.num_prompts, " prompts, ", all.num_differing, " differ\n");
  return text;
}

Json BenchJson(const BenchReport& report) {
  Json json;
  json["model"] = report.run.model;
  json["cpu"] = CpuName();
  json["engine"] = report.run.engine;
  json["build_type"] = PACELINE_BUILD_TYPE;
  json["draft"] = report.run.draft;
  json["max_draft_tokens"] = report.run.max_draft_tokens;
  json["rule"] = report.rule;
  json["settings"] = {{"temperature", report.sampling.temperature},
                      {"top_k", report.sampling.top_k},
                      {"top_p", report.sampling.top_p},
                      {"min_p", report.sampling.min_p},
                      {"max_tokens", report.max_tokens}};
  json["seed"] = report.seed;
  json["groups"] = Json::array();
  for (const BenchGroup& group : report.groups) {
    json["groups"].push_back(GroupJson(group, report.greedy()));
  }
  return json;
}

std::string CpuName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace paceline::cli
