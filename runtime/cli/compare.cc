// `paceline compare`: the fast engine's rows against the reference engine's.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "models/load_model.h"
#include "models/weight_source.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/interrupt.h"
#include "runtime/cli/output.h"
#include "runtime/cli/prompts.h"
#include "runtime/engine_difference.h"
#include "runtime/report.h"

namespace paceline::cli {
namespace {

constexpr int32_t kLongestText = 512;  // Tokens taken of a prompt.

absl::Status Check(const CompareOptions& options) {
  if (options.positions < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--positions: expected 1 or more, got ", options.positions));
  }
  if (options.generate.prompts_file.empty()) {
    return absl::InvalidArgumentError("--prompts: expected a file of prompts, got none");
  }
  return absl::OkStatus();
}

std::string Report(const EngineDifference& difference, bool json) {
  if (json) {
    return JsonText({{"positions", difference.num_positions},
                     {"mean_kl", difference.MeanKl()},
                     {"median_kl", difference.KlQuantile(0.5)},
                     {"p99_kl", difference.KlQuantile(0.99)},
                     {"max_kl", difference.KlQuantile(1)},
                     {"top1_agreement", difference.Agreement()}}) +
           "\n";
  }
  return absl::StrFormat(
      "positions        %d\n"
      "KL(reference || fast)  mean %.3e, median %.3e, 99th of 100 %.3e, largest %.3e nats\n"
      "same likeliest token   %.2f %%\n",
      difference.num_positions, difference.MeanKl(), difference.KlQuantile(0.5),
      difference.KlQuantile(0.99), difference.KlQuantile(1), 100 * difference.Agreement());
}

absl::Status Compare(CompareOptions options) {
  GenerateOptions& generate = options.generate;
  PACELINE_RETURN_IF_ERROR(Check(options));
  PACELINE_RETURN_IF_ERROR(ResolveModel(generate.model));
  PACELINE_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts(generate));
  PACELINE_ASSIGN_OR_RETURN(const auto weights, OpenModel(generate.model));
  PACELINE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(weights->tokenizer()));
  PACELINE_ASSIGN_OR_RETURN(const PromptEncoder encoder,
                            PromptEncoder::Create(generate, *tokenizer));
  generate.engine.engine = "fast";
  PACELINE_ASSIGN_OR_RETURN(const auto fast, LoadModel(*weights, generate.engine));
  ModelOptions oracle = generate.engine;
  oracle.engine = "reference";
  oracle.isa = "";
  PACELINE_ASSIGN_OR_RETURN(const auto reference, LoadModel(*weights, oracle));
  EngineDifference difference;
  for (const Prompt& prompt : prompts) {
    if (difference.num_positions >= options.positions || Interrupted()) break;
    PACELINE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, encoder.Encode(prompt));
    const int64_t left = std::min<int64_t>(options.positions - difference.num_positions, kLongestText);
    if (static_cast<int64_t>(ids.size()) > left) ids.resize(left);
    PACELINE_RETURN_IF_ERROR(
        AddDifference(*reference, *fast, tokenizer->vocab_size(), ids, difference));
    if (!generate.quiet) {
      Note(absl::StrFormat("%d of %d positions\n", difference.num_positions, options.positions));
    }
  }
  if (difference.num_positions == 0) return absl::CancelledError("stopped before a row was compared");
  Output out;
  out.Write(Report(difference, generate.json));
  return out.status();
}

}  // namespace

int RunCompare(CompareOptions options) {
  CatchInterrupts();
  const absl::Status status = NamingOptions(Compare(std::move(options)));
  return Interrupted() ? kExitInterrupted : ReportStatus(status);
}

}  // namespace paceline::cli
