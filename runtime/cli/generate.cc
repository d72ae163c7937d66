#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/interrupt.h"
#include "runtime/cli/output.h"
#include "runtime/cli/requests.h"
#include "runtime/cli/trace_file.h"

namespace paceline::cli {
namespace {

constexpr int64_t kLongPrompt = 1000;  // Tokens from which progress is shown.
constexpr char kLegend[] =
    "tokens: \033[32maccepted draft\033[0m, \033[33mrecovered after a refusal\033[0m, "
    "\033[36mbonus after a whole draft\033[0m, plain: nothing was drafted\n";

// What a terminal shows a token with.
std::string_view ColourOf(Decision decision) {
  switch (decision) {
    case Decision::kAccepted:
      return "\033[32m";
    case Decision::kRecovered:
      return "\033[33m";
    case Decision::kBonus:
      return "\033[36m";
    default:
      return "";
  }
}

std::string Coloured(const EmittedToken& token) {
  const std::string_view colour = ColourOf(token.decision);
  if (colour.empty() || token.text.empty()) return std::string(token.text);
  return std::string(colour) + std::string(token.text) + "\033[0m";
}

// Runs the requests of a workload in groups that share passes, and prints what comes.
class GenerateRun {
 public:
  explicit GenerateRun(Workload work) : work_(std::move(work)) {
    summary_.run = work_.run;
    summary_.seed = *work_.options.seed;
  }

  absl::Status OpenTrace() {
    if (work_.options.trace.empty()) return absl::OkStatus();
    PACELINE_ASSIGN_OR_RETURN(trace_, TraceFile::Open(work_.options.trace, work_.options.model));
    return absl::OkStatus();
  }

  // The first failure of a request, of the trace or of standard output. Prints the summary.
  absl::Status Run();

  // Whether an answer is missing or ends before its end.
  bool CutShort() const {
    return summary_.num_answers < work_.options.num_choices * std::ssize(work_.requests) ||
           summary_.endings.contains(std::string(FinishReasonName(FinishReason::kInterrupted)));
  }

 private:
  bool Streams() const {
    return !work_.options.json && work_.options.parallel == 1 &&
           NumStreams(work_.requests.front()) == 1;
  }
  bool Stopped() const { return Interrupted() || !out_.usable(); }
  Observer MakeObserver(size_t first);
  void ShowPromptProgress(int64_t done, int64_t total);
  void AnnouncePrompt(size_t index);
  absl::Status RunGroup(size_t first, size_t count);
  void PrintAnswer(size_t index, const GenerationResult& result, const Choice& choice);
  void AnnounceChoice(const GenerationResult& result, const Choice& choice);

  Workload work_;
  Output out_;
  std::optional<TraceFile> trace_;
  Summary summary_;
};

Observer GenerateRun::MakeObserver(size_t first) {
  Observer observer;
  observer.cancelled = [this] { return Stopped(); };
  if (Streams()) {
    observer.on_token = [this](const EmittedToken& token) {
      out_.Write(work_.options.show_drafts ? Coloured(token) : std::string(token.text));
    };
  }
  if (trace_) {
    observer.on_trace = [this, first](uint32_t choice, std::span<const TokenTrace> trace) {
      trace_->Write(static_cast<uint32_t>(first) + choice, trace, work_.session.tokenizer());
    };
  }
  if (!work_.options.quiet && ErrorIsTerminal()) {
    observer.on_prompt = [this](int64_t done, int64_t total) { ShowPromptProgress(done, total); };
  }
  return observer;
}

void GenerateRun::ShowPromptProgress(int64_t done, int64_t total) {
  if (total <= kLongPrompt) return;
  Note(absl::StrCat("\rreading the prompt: ", done, " of ", total, " tokens",
                    done == total ? "\n" : ""));
}

// Which prompt of a file the next text answers.
void GenerateRun::AnnouncePrompt(size_t index) {
  if (work_.options.json || work_.options.quiet || work_.prompts.size() == 1) return;
  const Prompt& prompt = work_.prompts[index];
  Note(absl::StrCat("[", index + 1, "/", work_.prompts.size(), "] ", prompt.origin,
                    prompt.category.empty() ? "" : ", " + prompt.category, "\n"));
}

void GenerateRun::PrintAnswer(size_t index, const GenerationResult& result, const Choice& choice) {
  if (work_.options.json) {
    Json json = AnswerJson(work_.run, result, choice);
    const Prompt& prompt = work_.prompts[index];
    if (!prompt.question_id.is_null()) json["question_id"] = prompt.question_id;
    if (!prompt.category.empty()) json["category"] = prompt.category;
    out_.Write(JsonText(json) + "\n");
    return;
  }
  if (!Streams()) {
    AnnouncePrompt(index);
    AnnounceChoice(result, choice);
    out_.Write(choice.text);
  }
  out_.Write("\n");
}

// Which of several answers the next text is.
void GenerateRun::AnnounceChoice(const GenerationResult& result, const Choice& choice) {
  if (work_.options.quiet || result.choices.size() == 1) return;
  Note(absl::StrCat("[choice ", choice.stream, "]\n"));
}

absl::Status GenerateRun::RunGroup(size_t first, size_t count) {
  if (Streams()) AnnouncePrompt(first);
  const std::span<const GenerationRequest> requests(work_.requests);
  const auto results =
      work_.engine->GenerateAll(requests.subspan(first, count), MakeObserver(first));
  absl::Status failed;
  for (size_t i = 0; i < results.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(NamingOptions(results[i].status()));
    for (const Choice& choice : results[i]->choices) {
      PrintAnswer(first + i, *results[i], choice);
      summary_.Add(*results[i], choice);
      failed.Update(choice.status);
    }
  }
  return failed;
}

absl::Status GenerateRun::Run() {
  if (work_.options.show_drafts && !work_.options.quiet) Note(kLegend);
  absl::Status status;
  const size_t group = static_cast<size_t>(work_.options.parallel);
  for (size_t first = 0; first < work_.requests.size() && !Stopped(); first += group) {
    status.Update(RunGroup(first, std::min(group, work_.requests.size() - first)));
  }
  status.Update(out_.status());
  if (trace_) status.Update(trace_->Close());
  const bool listened_to = out_.usable() || !out_.status().ok();
  if (!work_.options.quiet && listened_to) Note("\n" + SummaryText(summary_));
  return status;
}

}  // namespace

int RunGenerate(GenerateOptions options) {
  absl::StatusOr<Workload> work = Prepare(std::move(options));
  if (!work.ok()) return ReportStatus(work.status());
  GenerateRun run(*std::move(work));
  if (const absl::Status trace = run.OpenTrace(); !trace.ok()) return ReportStatus(trace);
  CatchInterrupts();
  const int code = ReportStatus(run.Run());
  return Interrupted() && run.CutShort() ? kExitInterrupted : code;
}

}  // namespace paceline::cli
