// What a GGUF file says of a model: configuration, tokenizer, and whether its tensors fit.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/gguf.h"
#include "models/model_config.h"
#include "models/tokenizer.h"

namespace paceline {

// Configuration by the metadata of the file's architecture. kDataLoss naming the key that is
// missing, of another type or out of bounds; kUnimplemented for an architecture, or a feature of
// one, that would be computed wrongly.
absl::StatusOr<ModelConfig> GgufModelConfig(const GgufFile& file);

// Vocabulary, merges, special ids and chat template. kDataLoss naming the key.
absl::StatusOr<TokenizerSpec> GgufTokenizer(const GgufFile& file);

// OK if the tensors are those of the architecture with the right shapes. kDataLoss naming the first
// that is missing or misshapen, kUnimplemented naming one that would be left out.
absl::Status CheckTensors(const GgufFile& file, const ModelConfig& config);

}  // namespace paceline
