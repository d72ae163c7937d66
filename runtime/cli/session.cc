#include "runtime/cli/session.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "draft/vocabulary.h"
#include "models/load_model.h"
#include "runtime/cli/output.h"

namespace paceline::cli {
namespace {

std::string FileName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

absl::Status CompareDraft(const Tokenizer& target, const WeightSource& draft_weights) {
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> draft,
                            Tokenizer::Create(draft_weights.tokenizer()));
  return NamingOptions(CompareVocabularies(target, *draft));
}

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(const WeightSource& weights,
                                                         const std::string& path,
                                                         const ModelOptions& model_options,
                                                         bool quiet) {
  const std::string name = FileName(path);
  const bool progress = !quiet && ErrorIsTerminal();
  if (progress) Note(absl::StrFormat("loading %s ...", name));
  Stopwatch clock;
  auto model = paceline::LoadModel(weights, model_options);
  if (progress) Note("\r\033[K");
  if (!model.ok()) return NamingOptions(model.status());
  if (!quiet) Note(absl::StrFormat("loaded %s in %.0f ms: %s\n", name, clock.Lap(), (*model)->Describe()));
  return model;
}

}  // namespace

absl::StatusOr<Session> Session::Open(const GenerateOptions& options) {
  Session session;
  PACELINE_ASSIGN_OR_RETURN(session.weights_, OpenModel(options.model));
  PACELINE_ASSIGN_OR_RETURN(session.tokenizer_, Tokenizer::Create(session.weights_->tokenizer()));
  PACELINE_RETURN_IF_ERROR(
      NamingOptions(options.sampling.Validate(session.tokenizer_->vocab_size())));
  if (options.speculation.draft != DraftKind::kModel) return session;
  PACELINE_ASSIGN_OR_RETURN(session.draft_weights_, OpenModel(options.draft_model));
  PACELINE_RETURN_IF_ERROR(CompareDraft(*session.tokenizer_, *session.draft_weights_));
  return session;
}

absl::Status Session::Load(const GenerateOptions& options, int32_t parallel) {
  Stopwatch clock;
  ModelOptions engine = options.engine;
  const int32_t context = engine.context_length > 0 ? engine.context_length : weights_->config().context_length;
  // One sequence more than run together: a prompt is read before it is forked.
  engine.max_positions = static_cast<int64_t>(context) * std::max(4, parallel + 1);
  PACELINE_ASSIGN_OR_RETURN(target_, LoadModel(*weights_, options.model, engine, options.quiet));
  if (draft_weights_ != nullptr) {
    engine.context_length = std::min(context, draft_weights_->config().context_length);
    PACELINE_ASSIGN_OR_RETURN(
        draft_, LoadModel(*draft_weights_, options.draft_model, engine, options.quiet));
  }
  load_ms_ = clock.Lap();
  return absl::OkStatus();
}

}  // namespace paceline::cli
