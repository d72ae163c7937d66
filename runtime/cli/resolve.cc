#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "runtime/cli/models.h"
#include "runtime/cli/options.h"

namespace paceline::cli {
namespace {

absl::Status Refuse(bool bad, absl::string_view message) {
  return bad ? absl::InvalidArgumentError(message) : absl::OkStatus();
}

absl::Status CheckPrompt(const GenerateOptions& options) {
  const int given =
      options.prompt.has_value() + options.prompt_ids.has_value() + !options.prompts_file.empty();
  PACELINE_RETURN_IF_ERROR(
      Refuse(given != 1,
             absl::StrCat("--prompt: expected one of --prompt, --prompt-ids and --prompts, got ",
                          given == 0 ? "none" : "several")));
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.chat && options.raw, "--chat: expected --chat or --raw, got both"));
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.prompt_ids && options.chat,
             "--prompt-ids: expected no --chat, token ids are taken as they are"));
  const std::pair<const char*, const std::string*> of_chats[] = {
      {"--system", &options.system},
      {"--chat-template", &options.chat_template},
      {"--prefill", &options.prefill}};
  for (const auto& [name, value] : of_chats) {
    PACELINE_RETURN_IF_ERROR(
        Refuse(!value->empty() && (options.raw || options.prompt_ids),
               absl::StrCat(name, ": expected a chat, got --raw or --prompt-ids")));
  }
  return absl::OkStatus();
}

// The engine would say so as well, but only after the model is loaded.
absl::Status CheckLengths(const GenerateOptions& options) {
  return Refuse(options.max_tokens < 0,
                absl::StrCat("--max-tokens: expected 0 or more, got ", options.max_tokens));
}

absl::Status CheckChoices(const GenerateOptions& options) {
  constexpr uint32_t kMost = 1024;
  PACELINE_RETURN_IF_ERROR(Refuse(options.num_choices < 1 || options.num_choices > kMost,
                                  absl::StrCat("--num-choices: expected a number in [1, ", kMost,
                                               "], got ", options.num_choices)));
  return Refuse(
      options.best_of != 0 && (options.best_of < options.num_choices || options.best_of > kMost),
      absl::StrCat("--best-of: expected a number in [", options.num_choices, " (--num-choices), ",
                   kMost, "], or 0 (off), got ", options.best_of));
}

absl::Status CheckOutput(const GenerateOptions& options) {
  const bool choices = std::max(options.num_choices, options.best_of) > 1;
  const bool many = !options.prompts_file.empty() || choices;
  PACELINE_RETURN_IF_ERROR(Refuse(options.logprobs >= 0 && !options.json,
                                  "--logprobs: expected --json, which prints them"));
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.show_drafts && options.json, "--show-drafts: expected text, got --json"));
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.parallel < 1 || options.parallel > 1024,
             absl::StrCat("--parallel: expected a number in [1, 1024], got ", options.parallel)));
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.parallel > 1 && !many,
             "--parallel: expected --prompts or several choices, there is one answer"));
  PACELINE_RETURN_IF_ERROR(Refuse(choices && options.show_drafts,
                                  "--show-drafts: expected one choice, texts cannot be streamed "
                                  "side by side"));
  return Refuse(options.parallel > 1 && options.show_drafts,
                "--show-drafts: expected --parallel 1, texts cannot be streamed side by side");
}

absl::Status CheckModel(const GenerateOptions& options) {
  PACELINE_RETURN_IF_ERROR(
      Refuse(options.engine.context_length < 0,
             absl::StrCat("--context: expected 0 (the model's own) or more, got ",
                          options.engine.context_length)));
  return Refuse(options.engine.num_threads < 0,
                absl::StrCat("--threads: expected 0 (one a processor) or more, got ",
                             options.engine.num_threads));
}

// The draft source, with the options that belong to another one refused. --draft none takes them
// all, so that it can be put behind any command to compare.
absl::Status ResolveDraft(GenerateOptions& options) {
  SpeculationOptions& speculation = options.speculation;
  if (!options.draft && !options.draft_model.empty()) speculation.draft = DraftKind::kModel;
  if (options.draft) {
    const auto kind = FindDraftKind(*options.draft);
    if (!kind.ok()) return NamingOptions(kind.status());
    speculation.draft = *kind;
  }
  if (speculation.draft == DraftKind::kNone) return absl::OkStatus();
  const bool model = speculation.draft == DraftKind::kModel;
  PACELINE_RETURN_IF_ERROR(Refuse(model && options.draft_model.empty(),
                                  "--draft: model needs --draft-model PATH, got none"));
  PACELINE_RETURN_IF_ERROR(
      Refuse(!model && !options.draft_model.empty(), "--draft-model: expected --draft model"));
  return Refuse(speculation.exit_layers != 0 && speculation.draft != DraftKind::kEarlyExit,
                "--exit-layers: expected --draft early-exit");
}

// The mass that a run keeps unless told otherwise, where its stages leave room for it.
void ResolveTopP(GenerateOptions& options) {
  SamplingOptions& sampling = options.sampling;
  const auto& order = sampling.order;
  const bool listed =
      order.size() < 2 || std::find(order.begin(), order.end(), "top_p") != order.end();
  if (sampling.mirostat_tau > 0 || !listed) sampling.top_p = 1;
  if (options.top_p) sampling.top_p = *options.top_p;
}

}  // namespace

absl::Status ResolveModel(std::string& model) {
  const char* fallback = std::getenv("PACELINE_MODEL");
  if (model.empty() && fallback != nullptr) model = fallback;
  PACELINE_RETURN_IF_ERROR(
      Refuse(model.empty(),
             "--model: expected a model, here or in the environment as PACELINE_MODEL, got none"));
  return ResolveModelName(model);
}

absl::Status Resolve(GenerateOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckPrompt(options));
  PACELINE_RETURN_IF_ERROR(CheckLengths(options));
  PACELINE_RETURN_IF_ERROR(CheckChoices(options));
  PACELINE_RETURN_IF_ERROR(CheckOutput(options));
  PACELINE_RETURN_IF_ERROR(CheckModel(options));
  PACELINE_RETURN_IF_ERROR(ResolveDraft(options));
  ResolveTopP(options);
  PACELINE_RETURN_IF_ERROR(NamingOptions(options.speculation.Validate()));
  PACELINE_RETURN_IF_ERROR(ResolveModel(options.model));
  if (!options.seed) {
    std::random_device device;
    options.seed = (static_cast<uint64_t>(device()) << 32) | device();
  }
  return absl::OkStatus();
}

absl::Status NamingOptions(const absl::Status& status) {
  constexpr absl::string_view kNames[][2] = {
      {"cached positions", "--cached"},
      {"context", "--context"},
      {"device", "--device"},
      {"draft", "--draft"},
      {"draft model", "--draft-model"},
      {"draft_min", "--draft-min"},
      {"draft_tokens", "--draft-tokens"},
      {"draw", "--draw"},
      {"dry_allowed_length", "--dry-allowed-length"},
      {"dry_base", "--dry-base"},
      {"dry_multiplier", "--dry-multiplier"},
      {"dry_penalty_last_n", "--dry-penalty-last-n"},
      {"dynatemp_exponent", "--dynatemp-exponent"},
      {"dynatemp_range", "--dynatemp-range"},
      {"engine", "--engine"},
      {"ensemble_weight", "--ensemble-weight"},
      {"epsilon_cutoff", "--epsilon-cutoff"},
      {"eta_cutoff", "--eta-cutoff"},
      {"exit_layers", "--exit-layers"},
      {"frequency_penalty", "--frequency-penalty"},
      {"guidance_scale", "--guidance-scale"},
      {"invariant", "--invariant"},
      {"isa", "--isa"},
      {"logit_bias", "--logit-bias"},
      {"logprobs", "--logprobs"},
      {"max_tokens", "--max-tokens"},
      {"min_p", "--min-p"},
      {"min_tokens", "--min-tokens"},
      {"mirostat_eta", "--mirostat-eta"},
      {"mirostat_tau", "--mirostat-tau"},
      {"negative_prompt", "--negative-prompt"},
      {"ngram", "--ngram-max, --ngram-min"},
      {"no_repeat_ngram_size", "--no-repeat-ngram-size"},
      {"order", "--order"},
      {"threads", "--threads"},
      {"presence_penalty", "--presence-penalty"},
      {"relaxed_delta", "--relaxed-delta"},
      {"relaxed_top_n", "--relaxed-top-n"},
      {"repetition_penalty", "--repetition-penalty"},
      {"require_exact", "--require-exact"},
      {"runs", "--runs"},
      {"stop", "--stop"},
      {"temperature", "--temperature"},
      {"top_h", "--top-h"},
      {"top_k", "--top-k"},
      {"top_n_sigma", "--top-n-sigma"},
      {"top_p", "--top-p"},
      {"typical_delta", "--typical-delta"},
      {"typical_epsilon", "--typical-epsilon"},
      {"typical_p", "--typical-p"},
      {"verify", "--verify"},
      {"xtc_probability", "--xtc-probability"},
      {"xtc_threshold", "--xtc-threshold"},
  };
  const absl::string_view message = status.message();
  for (const auto& [name, option] : kNames) {
    const bool named = message.size() > name.size() && message.substr(0, name.size()) == name &&
                       message[name.size()] == ':';
    if (!named) continue;
    return absl::Status(status.code(), absl::StrCat(option, message.substr(name.size())));
  }
  return status;
}

}  // namespace paceline::cli
