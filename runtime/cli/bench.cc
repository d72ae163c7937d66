#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "runtime/cli/bench_report.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/interrupt.h"
#include "runtime/cli/output.h"
#include "runtime/cli/requests.h"

namespace paceline::cli {
namespace {

constexpr int32_t kWarmUpTokens = 8;
constexpr int32_t kRuns = 3;

absl::Status Check(const BenchOptions& options) {
  if (options.runs && *options.runs < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--runs: expected 1 or more, got ", *options.runs));
  }
  if (options.passes) {
    if (options.generate.prompts_file.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--passes: expected no --prompts, passes need none");
  }
  if (options.limit < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--limit: expected 0 (all) or more, got ", options.limit));
  }
  if (options.generate.prompts_file.empty()) {
    return absl::InvalidArgumentError("--prompts: expected a file of prompts, got none");
  }
  if (options.generate.draft == "none") {
    return absl::InvalidArgumentError("--draft: expected a draft to compare with, got none");
  }
  return absl::OkStatus();
}

// Numbers of the first `limit` prompts of each category.
std::vector<size_t> Chosen(const std::vector<Prompt>& prompts, int32_t limit) {
  std::map<std::string, int32_t> taken;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (limit == 0 || taken[prompts[i].category]++ < limit) chosen.push_back(i);
  }
  return chosen;
}

class BenchRun {
 public:
  BenchRun(Workload work, const BenchOptions& options)
      : work_(std::move(work)),
        runs_(options.runs.value_or(kRuns)),
        chosen_(Chosen(work_.prompts, options.limit)) {}

  // Runs until done or Ctrl-C, then prints what is complete.
  absl::Status Run();

  bool CutShort() const { return samples_.size() < chosen_.size() * static_cast<size_t>(runs_); }

 private:
  absl::StatusOr<GenerationResult> Decode(size_t prompt, DraftKind draft, int32_t max_tokens);
  absl::Status Measure();
  absl::Status MeasureOne(int32_t run, size_t index);
  void Progress(size_t index, const BenchSample& sample) const;
  BenchReport Report() const;

  Workload work_;
  int32_t runs_;
  std::vector<size_t> chosen_;
  std::vector<BenchSample> samples_;
  std::string rule_;
};

absl::StatusOr<GenerationResult> BenchRun::Decode(size_t prompt, DraftKind draft,
                                                  int32_t max_tokens) {
  GenerationRequest request = work_.requests[prompt];
  request.speculation.draft = draft;
  request.max_tokens = std::min(request.max_tokens, max_tokens);
  request.seed = *work_.options.seed;
  Observer observer;
  observer.cancelled = Interrupted;
  PACELINE_ASSIGN_OR_RETURN(GenerationResult result, work_.engine->Generate(request, observer));
  PACELINE_RETURN_IF_ERROR(result.choices.front().status);
  return result;
}

absl::Status BenchRun::MeasureOne(int32_t run, size_t index) {
  const size_t prompt = chosen_[index];
  const DraftKind draft = work_.options.speculation.draft;
  // The order changes from prompt to prompt, so that a machine that slows down slows both.
  const bool draft_first = (static_cast<size_t>(run) + index) % 2 == 1;
  PACELINE_ASSIGN_OR_RETURN(
      GenerationResult first,
      Decode(prompt, draft_first ? draft : DraftKind::kNone, work_.options.max_tokens));
  PACELINE_ASSIGN_OR_RETURN(
      GenerationResult second,
      Decode(prompt, draft_first ? DraftKind::kNone : draft, work_.options.max_tokens));
  if (Interrupted()) return absl::OkStatus();
  if (draft_first) std::swap(first, second);
  rule_ = second.rule;
  const Choice& plain = first.choices.front();
  const Choice& drafted = second.choices.front();
  samples_.push_back({run, prompt, work_.prompts[prompt].category, plain.telemetry,
                      drafted.telemetry, plain.tokens == drafted.tokens});
  Progress(index, samples_.back());
  return absl::OkStatus();
}

absl::Status BenchRun::Measure() {
  for (DraftKind draft : {DraftKind::kNone, work_.options.speculation.draft}) {
    PACELINE_RETURN_IF_ERROR(Decode(chosen_.front(), draft, kWarmUpTokens).status());
  }
  for (int32_t run = 0; run < runs_; ++run) {
    for (size_t i = 0; i < chosen_.size() && !Interrupted(); ++i) {
      PACELINE_RETURN_IF_ERROR(MeasureOne(run, i));
    }
  }
  return absl::OkStatus();
}

void BenchRun::Progress(size_t index, const BenchSample& sample) const {
  if (work_.options.quiet) return;
  Note(absl::StrFormat("run %d/%d, prompt %d/%d: plain %.1f tokens/s, draft %.1f tokens/s\n",
                       sample.run + 1, runs_, index + 1, chosen_.size(),
                       sample.plain.TokensPerSecond().value_or(0),
                       sample.draft.TokensPerSecond().value_or(0)));
}

BenchReport BenchRun::Report() const {
  const GenerateOptions& options = work_.options;
  return {work_.run, options.max_tokens, options.sampling,
          rule_,     *options.seed,      Summarise(samples_, *options.seed)};
}

absl::Status BenchRun::Run() {
  absl::Status status = Measure();
  Output out;
  if (status.ok() || !samples_.empty()) {
    out.Write(work_.options.json ? JsonText(BenchJson(Report())) + "\n" : BenchText(Report()));
  }
  status.Update(out.status());
  return status;
}

}  // namespace

int RunBench(BenchOptions options) {
  if (const absl::Status status = Check(options); !status.ok()) return ReportStatus(status);
  if (options.passes) return RunBenchPasses(std::move(options));
  absl::StatusOr<Workload> work = Prepare(options.generate);
  if (!work.ok()) return ReportStatus(work.status());
  BenchRun bench(*std::move(work), options);
  CatchInterrupts();
  const int code = ReportStatus(bench.Run());
  return Interrupted() && bench.CutShort() ? kExitInterrupted : code;
}

}  // namespace paceline::cli
