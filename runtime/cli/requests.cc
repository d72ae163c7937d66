#include "runtime/cli/requests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/cli/output.h"

namespace paceline::cli {
namespace {

GenerationRequest RequestOf(const GenerateOptions& options, std::vector<int32_t> prompt) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = options.sampling;
  request.speculation = options.speculation;
  request.max_tokens = options.max_tokens;
  request.num_choices = options.num_choices;
  request.best_of = options.best_of;
  if (options.prompts_file.empty()) request.seed = options.seed;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.num_logprobs = options.logprobs;
  return request;
}

absl::Status InPrompt(const absl::Status& status, const Prompt& prompt) {
  // A fault of the options has its name in front already.
  const absl::Status named = NamingOptions(status);
  if (named != status) return named;
  absl::string_view message = status.message();
  if (message.substr(0, 8) == "prompt: ") message.remove_prefix(8);
  return absl::Status(status.code(), absl::StrCat(prompt.origin, ": ", message));
}

absl::StatusOr<std::vector<int32_t>> NegativePrompt(const Workload& work,
                                                    const PromptEncoder& encoder) {
  Prompt prompt;
  prompt.origin = "--negative-prompt";
  prompt.text = work.options.negative_prompt;
  if (prompt.text.empty()) return std::vector<int32_t>();
  absl::StatusOr<std::vector<int32_t>> ids = encoder.Encode(prompt);
  if (!ids.ok()) return InPrompt(ids.status(), prompt);
  return ids;
}

absl::Status EncodePrompts(Workload& work) {
  PACELINE_ASSIGN_OR_RETURN(const PromptEncoder encoder,
                            PromptEncoder::Create(work.options, work.session.tokenizer()));
  if (!encoder.notice().empty() && !work.options.quiet) Note(encoder.notice() + "\n");
  PACELINE_ASSIGN_OR_RETURN(const std::vector<int32_t> negative, NegativePrompt(work, encoder));
  for (const Prompt& prompt : work.prompts) {
    if (!work.session.tokenizer().CanSpell(prompt.text)) {
      Note(absl::StrCat("note: ", prompt.origin,
                        ": bytes that the vocabulary cannot spell are left out\n"));
    }
    absl::StatusOr<std::vector<int32_t>> ids = encoder.Encode(prompt);
    if (!ids.ok()) return InPrompt(ids.status(), prompt);
    work.requests.push_back(RequestOf(work.options, *std::move(ids)));
    work.requests.back().negative_prompt = negative;
  }
  return absl::OkStatus();
}

RunInfo RunInfoOf(const GenerateOptions& options, const Session& session) {
  const SpeculationOptions& speculation = options.speculation;
  const bool drafts = speculation.draft != DraftKind::kNone;
  return {options.model, session.models().target->Describe(),
          std::string(DraftKindName(speculation.draft)),
          drafts ? speculation.num_draft_tokens : 0, session.load_ms()};
}

}  // namespace

absl::StatusOr<Workload> Prepare(GenerateOptions options) {
  Workload work;
  PACELINE_RETURN_IF_ERROR(Resolve(options));
  PACELINE_ASSIGN_OR_RETURN(work.prompts, ReadPrompts(options));
  PACELINE_ASSIGN_OR_RETURN(work.session, Session::Open(options));
  work.options = std::move(options);
  PACELINE_RETURN_IF_ERROR(EncodePrompts(work));
  PACELINE_RETURN_IF_ERROR(work.session.Load(work.options, work.options.parallel));
  work.engine = std::make_unique<Engine>(work.session.models(),
                                         EngineOptions{*work.options.seed, work.options.parallel});
  for (size_t i = 0; i < work.requests.size(); ++i) {
    const absl::Status status = work.engine->Check(work.requests[i]);
    if (!status.ok()) return InPrompt(status, work.prompts[i]);
  }
  work.run = RunInfoOf(work.options, work.session);
  return work;
}

}  // namespace paceline::cli
