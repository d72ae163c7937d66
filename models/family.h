// The families of transformers that are known: what each one does differently, as data.
//
// A new family is a row in family.cc and, where its tensors have names of their own, a table of
// names there; docs/adding-a-model.md goes through it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_config.h"

namespace paceline {

// How one tensor of a Hugging Face folder is called, and the name it has in GGUF files, which is the
// name the engines ask for. "#" stands for the number of a layer; the endings ".weight" and ".bias"
// are left out.
struct TensorName {
  std::string_view folder;
  std::string_view gguf;
};

struct Family {
  std::string_view name;        // general.architecture of GGUF files; empty: there is none.
  std::string_view model_type;  // Of config.json.

  NormKind norm = NormKind::kRms;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool query_key_norm = false;
  bool post_norms = false;
  bool query_key_value_bias = false;  // Always; other families may have one.
  bool all_biases = false;
  bool learned_positions = false;
  bool scales_embedding = false;  // By sqrt(hidden size).
  bool gguf_interleaved = false;  // GGUF files hold the rows of queries and keys in pairs.
  // With a window, every n-th layer sees all positions; 0: every layer slides.
  int32_t window_period = 0;
  // Base of the rotation of sliding layers; 0: that of the others.
  float sliding_rope_base = 0;

  // Of Hugging Face folders.
  std::span<const TensorName> names;
  std::string_view prefix;      // May stand in front of the names.
  bool norms_less_one = false;  // RMS norm weights are stored without their one.
  bool transposed = false;      // Matrices of layers are [inputs, outputs].
  bool tied_head = false;       // Where config.json does not say,
  int32_t head_dim = 0;         // and this; 0: an even share of the hidden size.
};

// Every family. By the file's own word: nullptr if it is none of them.
std::span<const Family> Families();
const Family* FamilyOfArchitecture(std::string_view name);
const Family* FamilyOfModelType(std::string_view model_type);

// What the family settles of a configuration. Sizes and the number of layers are read before; the
// attention scale becomes 1 / sqrt(head size), the embedding's what the family says.
void ApplyFamily(const Family& family, ModelConfig& config);

// Windows of the layers: each but every `period`-th slides, all if period is 0.
void SlideLayers(int32_t window, int32_t period, ModelConfig& config);

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // Outermost dimension first.
};

// The tensors that an engine asks for, in a fixed order: exactly these, no more and no fewer.
std::vector<TensorSpec> TensorsOf(const ModelConfig& config);

// Name of a layer's tensor, such as "blk.3.attn_q.weight".
std::string LayerTensor(int32_t layer, std::string_view part, std::string_view ending = "weight");

}  // namespace paceline
