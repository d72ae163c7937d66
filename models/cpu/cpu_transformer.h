// The fast engine for processors: block-quantised weights in their own precision, int8 activations,
// and results that do not depend on what shares the pass.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "models/language_model.h"
#include "models/model_options.h"
#include "models/weight_source.h"

namespace paceline {

// Packs the weights; the file need not outlive the model.
//
// Width invariance: within one build and instruction set the logits of a row are bit for bit the
// same for any number of rows in the pass, any place among them, any other sequences, any number of
// threads, any cutting of the prompt, and for a chain and a path of a tree alike.
//
// Cost of a pass of M rows: weights are read once (memory-bound up to about eight rows), 2 * M
// operations a weight. Errors: kInvalidArgument (options), kNotFound or kDataLoss (tensors),
// kUnimplemented (shapes), kResourceExhausted (memory).
absl::StatusOr<std::unique_ptr<LanguageModel>> LoadCpuModel(const WeightSource& weights,
                                                            const ModelOptions& options);

}  // namespace paceline
