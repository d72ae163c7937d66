// A model file, its tokenizer and an engine, for tests that run real checkpoints.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "models/load_model.h"
#include "models/tokenizer.h"
#include "models/weight_source.h"
#include "runtime/engine.h"

namespace paceline::testing {

template <typename T>
T OrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

struct LoadedModel {
  std::unique_ptr<WeightSource> weights;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<LanguageModel> model;

  explicit LoadedModel(const std::string& path, const ModelOptions& options = {})
      : weights(OrThrow(OpenModel(path))),
        tokenizer(OrThrow(Tokenizer::Create(weights->tokenizer()))),
        model(OrThrow(LoadModel(*weights, options))) {}

  EngineModels ForEngine(LanguageModel* draft = nullptr) const {
    return {model.get(), draft, VocabularyOf(*tokenizer)};
  }
};

}  // namespace paceline::testing
