// The models of a run: files, vocabulary, weights.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/tokenizer.h"
#include "models/weight_source.h"
#include "runtime/cli/options.h"
#include "runtime/engine.h"

namespace paceline::cli {

// Opened in two steps, so that bad prompts and options are refused before weights are read.
class Session {
 public:
  // Opens the files and their tokenizers; the draft's vocabulary must be the target's.
  static absl::StatusOr<Session> Open(const GenerateOptions& options);

  // Reads the weights. Takes seconds. Room for `parallel` sequences a pass.
  absl::Status Load(const GenerateOptions& options, int32_t parallel);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  EngineModels models() const { return {target_.get(), draft_.get(), VocabularyOf(*tokenizer_)}; }
  double load_ms() const { return load_ms_; }

 private:
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<WeightSource> draft_weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<LanguageModel> target_;
  std::unique_ptr<LanguageModel> draft_;
  double load_ms_ = 0;
};

}  // namespace paceline::cli
