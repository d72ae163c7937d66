#include "runtime/cli/options.h"

#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/cli/parse.h"
#include "verify/rules.h"

namespace paceline::cli {
namespace {

constexpr char kSampling[] = "Sampling (off-values leave the model's distribution as it is)";
constexpr char kDrafting[] = "Drafting (changes speed, not what may come out)";
constexpr char kLossy[] = "Lossy rules (do change what comes out)";
constexpr char kPrompt[] = "Prompt (one of the first three)";
constexpr char kModel[] = "Model";
constexpr char kLength[] = "Length and ending";
constexpr char kOutput[] = "Output";

constexpr char kExamples[] =
    R"(Drafting: a cheap draft proposes a few tokens, the model checks all of them in one
pass and keeps those it agrees with. The text follows the same distribution as without a draft.

Examples:
  paceline generate -m model.gguf -p "Why is the sky blue?"
      answers with drafts looked up in the text itself (n-gram), and reports how many were accepted
  paceline generate -m model.gguf -p "Why is the sky blue?" --temperature 0 --draft none
      the same model without drafting; compare tokens/s with the run without --draft none
  paceline generate -m model.gguf -p "Count to 20." --draft early-exit --show-drafts
      drafts with the model's own first layers; accepted tokens are coloured
)";

constexpr char kBenchExamples[] =
    R"(Runs every prompt without and with the draft, in turn, and compares.

Examples:
  paceline bench -m model.gguf --prompts prompts.jsonl --limit 5 --temperature 0 --max-tokens 128
      tokens/s of both, by category
  paceline bench -m model.gguf --passes
      what checking several tokens in one pass costs here, against a pass for one
)";

// The long name among "--top-k,-k": what messages call the option.
std::string LongName(const std::string& names) {
  const size_t start = names.find("--");
  return names.substr(start, names.find(',', start) - start);
}

// An option whose text `parse` turns into a value for `accept`.
template <typename Parse, typename Accept>
CLI::Option* AddParsed(CLI::App& app, const std::string& names, Parse parse, Accept accept,
                       const std::string& type, const std::string& description) {
  return app
      .add_option_function<std::string>(
          names,
          [name = LongName(names), parse, accept](const std::string& text) {
            auto value = parse(text);
            if (!value.ok()) {
              throw CLI::ValidationError(name, std::string(value.status().message()));
            }
            accept(*std::move(value));
          },
          description)
      ->type_name(type);
}

template <typename Number, typename Field>
CLI::Option* AddNumber(CLI::App& app, const std::string& names, Field& value,
                       const std::string& type, const std::string& description) {
  return AddParsed(
      app, names, ParseNumber<Number>, [&value](Number number) { value = number; }, type,
      description);
}

// " (default 4)": numbers as the options struct has them.
template <typename Number>
std::string With(absl::string_view description, Number default_value) {
  return absl::StrCat(description, " (default ", default_value, ")");
}

void AddPrompt(CLI::App& app, GenerateOptions& options) {
  app.add_option_function<std::string>(
         "--prompt,-p", [&](const std::string& text) { options.prompt = text; },
         "the prompt; - reads it from standard input (one line end at its end is dropped)")
      ->type_name("TEXT")
      ->group(kPrompt);
  AddParsed(
      app, "--prompt-ids", ParseIds,
      [&](std::vector<int32_t> ids) { options.prompt_ids = std::move(ids); }, "IDS",
      "token ids as in 1,2,3, taken as they are")
      ->group(kPrompt);
}

void AddPromptStyle(CLI::App& app, GenerateOptions& options) {
  app.add_option("--prompts", options.prompts_file,
                 "file with a prompt a line: a JSON string, or an object with `prompt` or `turns`")
      ->type_name("FILE.jsonl")
      ->group(kPrompt);
  app.add_flag("--chat", options.chat,
               "wrap the prompt in the model's chat template (default if the template is known)")
      ->group(kPrompt);
  app.add_flag("--raw", options.raw, "continue the prompt's text as it is")->group(kPrompt);
  app.add_option(
         "--chat-template", options.chat_template,
         "chatml | qwen | llama3 | gemma | mistral-v1 | mistral | mistral-v7: wrap prompts so "
         "(default: as the model's own template says)")
      ->type_name("FAMILY")
      ->group(kPrompt);
  app.add_option("--prefill", options.prefill,
                 "the chat's answer begins with TEXT, which is not printed again")
      ->type_name("TEXT")
      ->group(kPrompt);
  app.add_option("--system", options.system, "system message of the chat (default: the template's)")
      ->type_name("TEXT")
      ->group(kPrompt);
}

void AddModel(CLI::App& app, GenerateOptions& options) {
  AddModelOption(app, options.model);
  AddNumber<int32_t>(app, "--context,-c", options.engine.context_length, "TOKENS",
                     "longest prompt and answer together (default 0: the model's own)")
      ->group(kModel);
  app.add_option("--engine", options.engine.engine,
                 "fast, or reference: float32 in libtorch, the oracle (default: fast on cpu)")
      ->type_name("NAME")
      ->group(kModel);
  app.add_option("--device", options.engine.device, "cpu, cuda or cuda:N (default cpu)")
      ->type_name("NAME")
      ->group(kModel);
  app.add_option(
         "--isa", options.engine.isa,
         "instruction set of the fast engine (default: the best here; see inspect --machine)")
      ->type_name("NAME")
      ->group(kModel);
  AddNumber<int32_t>(app, "--threads,-t", options.engine.num_threads, "N",
                     "threads of a pass (default 0: one a processor)")
      ->group(kModel);
}

void AddLength(CLI::App& app, GenerateOptions& options) {
  AddNumber<int32_t>(app, "--max-tokens,-n", options.max_tokens, "TOKENS",
                     With("longest answer", options.max_tokens))
      ->group(kLength);
  AddNumber<int32_t>(app, "--min-tokens", options.sampling.min_tokens, "TOKENS",
                     "no end token before so many (default 0: off)")
      ->group(kLength);
  app.add_option("--stop", options.stop, "text that ends the answer; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(kLength);
  app.add_flag("--ignore-eos", options.ignore_eos, "go on after the model's end tokens")
      ->group(kLength);
}

void AddChoices(CLI::App& app, GenerateOptions& options) {
  AddNumber<uint32_t>(app, "--num-choices", options.num_choices, "N",
                      With("answers to each prompt, independent draws", options.num_choices))
      ->group(kLength);
  AddNumber<uint32_t>(
      app, "--best-of", options.best_of, "M",
      "draw M answers and keep the likeliest by mean log-probability (default 0: off)")
      ->group(kLength);
}

void AddFilters(CLI::App& app, GenerateOptions& options) {
  SamplingOptions& sampling = options.sampling;
  const auto add = [&](const char* name, double& value, const char* type, const std::string& text) {
    AddNumber<double>(app, name, value, type, text)->group(kSampling);
  };
  add("--temperature", sampling.temperature, "T",
      With("0 always takes the likeliest token, 1 is off", sampling.temperature));
  AddNumber<int32_t>(app, "--top-k", sampling.top_k, "N",
                     "keep the N likeliest tokens (default 0: off)")
      ->group(kSampling);
  AddParsed(
      app, "--top-p", ParseNumber<double>, [&](double mass) { options.top_p = mass; }, "MASS",
      With("keep the likeliest tokens up to this mass in [0, 1], 1 is off", sampling.top_p))
      ->group(kSampling);
  add("--min-p", sampling.min_p, "SHARE",
      "keep tokens with at least this share of the likeliest one's (default 0: off)");
  add("--typical-p,--typical", sampling.typical_p, "MASS",
      "keep the most typical tokens up to this mass (default 1: off)");
  add("--top-n-sigma,--top-nsigma", sampling.top_n_sigma, "N",
      "keep logits within N standard deviations of the largest (default 0: off)");
  add("--epsilon-cutoff", sampling.epsilon_cutoff, "P",
      "keep tokens of at least this probability (default 0: off)");
  add("--eta-cutoff", sampling.eta_cutoff, "P",
      "the same, less where the model is unsure (default 0: off)");
  add("--top-h", sampling.top_h, "SHARE",
      "keep the likeliest tokens up to this share of their entropy (default 0: off)");
  add("--xtc-probability", sampling.xtc_probability, "P",
      "how often the likeliest tokens are left out (default 0: off)");
  add("--xtc-threshold", sampling.xtc_threshold, "P",
      With("tokens of this probability are such, above 0.5 is off", sampling.xtc_threshold));
  add("--mirostat-tau,--mirostat-ent", sampling.mirostat_tau, "BITS",
      "surprise aimed at, instead of every filter (default 0: off)");
  add("--mirostat-eta,--mirostat-lr", sampling.mirostat_eta, "RATE",
      With("how fast it is corrected", sampling.mirostat_eta));
  app.add_option("--order", sampling.order,
                 "default | hf | vllm | llama | flashinfer-joint, or names of stages; comma list")
      ->type_name("STAGES")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kSampling);
  AddParsed(
      app, "--draw", ParseDrawMethod, [&](DrawMethod method) { sampling.draw = method; }, "METHOD",
      "inverse_cdf | gumbel: noise of a draw (default gumbel with --verify coupled, else "
      "inverse_cdf)")
      ->group(kSampling);
  add("--guidance-scale,--cfg-scale", sampling.guidance_scale, "G",
      "leads away from what the model says without the prompt; twice the passes (default 1: off)");
  app.add_option("--negative-prompt,--cfg-negative-prompt", options.negative_prompt,
                 "with --guidance-scale: leads away from what it says behind this prompt")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(kSampling);
  add("--dynatemp-range", sampling.dynatemp_range, "D",
      "temperature T - D .. T + D by the model's uncertainty (default 0: off)");
  add("--dynatemp-exponent,--dynatemp-exp", sampling.dynatemp_exponent, "E",
      With("power of the uncertainty", sampling.dynatemp_exponent));
}

void AddPenalties(CLI::App& app, GenerateOptions& options) {
  SamplingOptions& sampling = options.sampling;
  const auto add = [&](const char* name, double& value, const char* text) {
    AddNumber<double>(app, name, value, "X", text)->group(kSampling);
  };
  add("--repetition-penalty,--repeat-penalty", sampling.repetition_penalty,
      "divides logits of tokens seen in prompt or answer (default 1: off)");
  add("--presence-penalty", sampling.presence_penalty,
      "subtracted from logits of tokens seen in the answer (default 0: off)");
  add("--frequency-penalty", sampling.frequency_penalty,
      "subtracted once a time the token was seen in the answer (default 0: off)");
  add("--dry-multiplier", sampling.dry_multiplier,
      "penalty for going on with a repetition (default 0: off)");
  add("--dry-base", sampling.dry_base, "its growth with each repeated token (default 1.75)");
  AddNumber<int32_t>(app, "--dry-allowed-length", sampling.dry_allowed_length, "N",
                     With("repetitions shorter than this are free", sampling.dry_allowed_length))
      ->group(kSampling);
  AddNumber<int32_t>(app, "--dry-penalty-last-n", sampling.dry_penalty_last_n, "N",
                     With("tokens looked at, -1 is all, 0 is off", sampling.dry_penalty_last_n))
      ->group(kSampling);
  AddNumber<int32_t>(app, "--no-repeat-ngram-size", sampling.no_repeat_ngram_size, "N",
                     "no N tokens in a row come twice (default 0: off)")
      ->group(kSampling);
  AddParsed(
      app, "--logit-bias", ParseLogitBias,
      [&](std::vector<std::pair<int32_t, double>> biases) {
        auto& all = options.sampling.logit_bias;
        all.insert(all.end(), biases.begin(), biases.end());
      },
      "ID=BIAS", "added to a token's logit, -inf bans it; comma list, may be repeated")
      ->multi_option_policy(CLI::MultiOptionPolicy::Join)
      ->delimiter(',')
      ->group(kSampling);
  AddNumber<uint64_t>(app, "--seed", options.seed, "N",
                      "same seed and settings, same text (default: drawn, and printed)")
      ->group(kSampling);
}

// "standard | block | ...", the lossy ones last and called so.
std::string RuleNames() {
  std::string exact;
  std::string lossy;
  for (const Rule& rule : Rules()) {
    std::string& names = rule.lossless ? exact : lossy;
    absl::StrAppend(&names, names.empty() ? "" : " | ", std::string(rule.name));
  }
  return absl::StrCat(exact, "; lossy: ", lossy);
}

void AddLossy(CLI::App& app, RuleOptions& rule) {
  const auto add = [&](const char* name, double& value, const std::string& text) {
    AddNumber<double>(app, name, value, "X", With(text, value))->group(kLossy);
  };
  add("--typical-epsilon", rule.typical_epsilon,
      "--verify typical accepts tokens likelier than this,");
  add("--typical-delta", rule.typical_delta, "or than this times exp(-entropy), if that is less");
  app.add_flag("--typical-draw", rule.typical_draw,
               "draw the token after the accepted ones instead of taking the likeliest")
      ->group(kLossy);
  AddNumber<int32_t>(app, "--relaxed-top-n", rule.relaxed_top_n, "N",
                     With("--verify relaxed accepts among the N likeliest", rule.relaxed_top_n))
      ->group(kLossy);
  add("--relaxed-delta", rule.relaxed_delta, "and this far below the largest probability");
  add("--ensemble-weight", rule.ensemble_weight,
      "--verify ensemble: share of the target in the mixture");
}

void AddDrafting(CLI::App& app, GenerateOptions& options) {
  SpeculationOptions& speculation = options.speculation;
  app.add_option_function<std::string>(
         "--draft", [&](const std::string& name) { options.draft = name; },
         "none | ngram (looks the text up in itself) | model | early-exit (default ngram)")
      ->type_name("SOURCE")
      ->group(kDrafting);
  app.add_option("--draft-model", options.draft_model,
                 "smaller model with the same vocabulary; implies --draft model")
      ->type_name("PATH")
      ->group(kDrafting);
  const auto add = [&](const char* name, int32_t& value, const std::string& text) {
    AddNumber<int32_t>(app, name, value, "N", text)->group(kDrafting);
  };
  add("--draft-tokens", speculation.num_draft_tokens,
      With("tokens drafted a round, 1 to 64", speculation.num_draft_tokens));
  add("--draft-min", speculation.draft_min,
      "drop drafts shorter than this, if they were not sampled (default 0: off)");
  add("--exit-layers", speculation.exit_layers,
      "layers that draft with --draft early-exit (default 0: two thirds)");
  add("--ngram-max", speculation.ngram.max_n,
      With("longest ending looked up with --draft ngram", speculation.ngram.max_n));
  add("--ngram-min", speculation.ngram.min_n, With("shortest one", speculation.ngram.min_n));
  app.add_option("--verify", speculation.verify,
                 absl::StrCat(RuleNames(),
                              ": rule that accepts (default standard); at temperature 0 "
                              "every exact one is greedy"))
      ->type_name("RULE")
      ->group(kDrafting);
  AddLossy(app, speculation.rule);
  app.add_flag("--require-exact", speculation.require_exact, "refuse a lossy rule")
      ->group(kDrafting);
  app.add_flag("--invariant", speculation.invariant,
               "refuse a rule whose text, for one seed, depends on the draft; see paceline matrix")
      ->group(kDrafting);
}

void AddOutput(CLI::App& app, GenerateOptions& options) {
  app.add_flag("--json", options.json, "print one JSON object instead of text, one a prompt")
      ->group(kOutput);
  app.add_flag("--quiet,-q", options.quiet, "no summary, progress or notes on standard error")
      ->group(kOutput);
}

void AddDetails(CLI::App& app, GenerateOptions& options) {
  app.add_flag("--show-drafts", options.show_drafts, "colour the tokens by where they came from")
      ->group(kOutput);
  AddNumber<int32_t>(app, "--logprobs", options.logprobs, "N",
                     "with --json: log-probabilities of each token and N others (default: off)")
      ->group(kOutput);
  app.add_option("--trace", options.trace, "write every decision to FILE, a JSON object a line")
      ->type_name("FILE")
      ->group(kOutput);
  AddNumber<int32_t>(
      app, "--parallel", options.parallel, "N",
      With("with --prompts or choices: sequences that share a pass", options.parallel))
      ->group(kOutput);
}

}  // namespace

GenerateOptions::GenerateOptions() {
  sampling.temperature = 0.8;
  sampling.top_p = 0.95;
}

void AddModelOption(CLI::App& app, std::string& model) {
  app.add_option("--model,-m", model,
                 "GGUF file, Hugging Face folder, or a name of `paceline models`\n(default: "
                 "environment PACELINE_MODEL)")
      ->type_name("PATH")
      ->group(kModel);
}

CLI::Option* AddWholeNumber(CLI::App& app, const std::string& names, int32_t& value,
                            const std::string& description) {
  return AddNumber<int32_t>(app, names, value, "N", description);
}

void AddGenerateOptions(CLI::App& app, GenerateOptions& options) {
  AddPrompt(app, options);
  AddPromptStyle(app, options);
  AddModel(app, options);
  AddLength(app, options);
  AddChoices(app, options);
  AddFilters(app, options);
  AddPenalties(app, options);
  AddDrafting(app, options);
  AddOutput(app, options);
  AddDetails(app, options);
  app.footer(kExamples);
}

void AddBenchOptions(CLI::App& app, BenchOptions& options) {
  AddPromptStyle(app, options.generate);
  AddNumber<int32_t>(app, "--limit", options.limit, "N",
                     "prompts taken of each category (default 0: all)")
      ->group("Measuring");
  AddNumber<int32_t>(app, "--runs", options.runs, "N",
                     "how often everything is run; medians are printed (default 3, passes 15)")
      ->group("Measuring");
  app.add_flag("--passes", options.passes,
               "no prompts: what a pass of 1 to 32 rows costs, beside the machine's limits")
      ->group("Measuring");
  AddNumber<int32_t>(
      app, "--cached", options.cached_positions, "TOKENS",
      With("with --passes: positions cached before a pass", options.cached_positions))
      ->group("Measuring");
  AddModel(app, options.generate);
  AddLength(app, options.generate);
  AddFilters(app, options.generate);
  AddPenalties(app, options.generate);
  AddDrafting(app, options.generate);
  AddOutput(app, options.generate);
  app.footer(kBenchExamples);
}

void AddCompareOptions(CLI::App& app, CompareOptions& options) {
  AddPromptStyle(app, options.generate);
  AddNumber<int32_t>(app, "--positions", options.positions, "N",
                     With("rows compared, from the first prompts on", options.positions))
      ->group(kPrompt);
  AddModel(app, options.generate);
  AddOutput(app, options.generate);
}

}  // namespace paceline::cli
