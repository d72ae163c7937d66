// What a GGUF file says of a model: configuration, tokenizer, and whether its tensors fit.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/tokenizer_spec.h"

namespace paceline {

// Configuration by the metadata of the file's architecture. kDataLoss naming the key that is
// missing, of another type or out of bounds; kUnimplemented for an architecture, or a feature of
// one, that would be computed wrongly.
absl::StatusOr<ModelConfig> GgufModelConfig(const GgufFile& file);

// Vocabulary, merges, special ids and chat template. kDataLoss naming the key.
absl::StatusOr<TokenizerSpec> GgufTokenizer(const GgufFile& file);

// The tensors that an engine asks for (TensorsOf in family.h), by its names: a matrix of queries, keys
// and values in one is three here. kDataLoss naming the first that is missing or misshapen,
// kUnimplemented naming one that would be left out.
absl::StatusOr<std::vector<TensorView>> GgufTensors(const GgufFile& file,
                                                    const ModelConfig& config);

}  // namespace paceline
