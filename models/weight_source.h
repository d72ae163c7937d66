// Tensors and metadata of a model, whatever file they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/block_format.h"
#include "models/model_config.h"
#include "models/tokenizer_spec.h"

namespace paceline {

// One tensor inside a mapped file; valid while its WeightSource lives.
struct TensorView {
  std::string name;
  std::vector<int64_t>
      shape;  // Outermost dimension first; a matrix is [rows = outputs, columns = inputs].
  BlockType type = BlockType::kF32;
  std::span<const uint8_t> bytes;  // Exactly BlockBytes(type, elements) long.

  int64_t num_elements() const;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const TokenizerSpec& tokenizer() const = 0;  // Vocabulary, merges, template.
  virtual const std::vector<TensorView>& tensors() const = 0;
  virtual int64_t file_bytes() const = 0;

  // Gives back the memory of tensors that were read, once an engine has its own copy of them.
  virtual void ReleasePages() const {}

  // The tensor `name`, or kNotFound naming it.
  absl::StatusOr<const TensorView*> Find(absl::string_view name) const;
};

// Opens a model: a GGUF file, a Hugging Face folder, or a config.json or safetensors file, which
// stands for its folder. kNotFound if there is none, kDataLoss if it is damaged (the message names
// the part), kUnimplemented for a format, type or architecture that is not supported.
absl::StatusOr<std::unique_ptr<WeightSource>> OpenModel(const std::string& path);

}  // namespace paceline
