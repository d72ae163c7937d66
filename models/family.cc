#include "models/family.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

constexpr TensorName kLlamaNames[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
};

// As llama, with norms before and after both parts of a layer.
constexpr TensorName kGemmaNames[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"layers.#.input_layernorm", "blk.#.attn_norm"},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q"},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k"},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v"},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output"},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm"},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm"},
    {"layers.#.post_attention_layernorm", "blk.#.post_attention_norm"},
    {"layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"},
    {"layers.#.post_feedforward_layernorm", "blk.#.post_ffw_norm"},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate"},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up"},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down"},
};

constexpr TensorName kGpt2Names[] = {
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"h.#.ln_1", "blk.#.attn_norm"},
    {"h.#.attn.c_attn", "blk.#.attn_qkv"},
    {"h.#.attn.c_proj", "blk.#.attn_output"},
    {"h.#.ln_2", "blk.#.ffn_norm"},
    {"h.#.mlp.c_fc", "blk.#.ffn_up"},
    {"h.#.mlp.c_proj", "blk.#.ffn_down"},
};

constexpr Family kFamilies[] = {
    {.name = "llama", .model_type = "llama", .gguf_interleaved = true, .names = kLlamaNames,
     .prefix = "model."},
    // GGUF files of it are called llama.
    {.name = "", .model_type = "mistral", .names = kLlamaNames, .prefix = "model."},
    {.name = "qwen2", .model_type = "qwen2", .query_key_value_bias = true, .names = kLlamaNames,
     .prefix = "model."},
    {.name = "qwen3", .model_type = "qwen3", .query_key_norm = true, .names = kLlamaNames,
     .prefix = "model.", .head_dim = 128},
    {.name = "gemma3", .model_type = "gemma3_text", .activation = Activation::kGelu,
     .query_key_norm = true, .post_norms = true, .scales_embedding = true, .window_period = 6,
     .sliding_rope_base = 10000.0f, .names = kGemmaNames, .prefix = "model.",
     .norms_less_one = true, .tied_head = true, .head_dim = 256},
    {.name = "gpt2", .model_type = "gpt2", .norm = NormKind::kLayer,
     .activation = Activation::kGelu, .gated = false, .query_key_value_bias = true,
     .all_biases = true, .learned_positions = true, .names = kGpt2Names, .prefix = "transformer.",
     .transposed = true, .tied_head = true},
};

// Adds a norm's tensors.
void AddNorm(const ModelConfig& config, const std::string& name, std::vector<TensorSpec>& list) {
  list.push_back({name + ".weight", {config.hidden_size}});
  if (config.norm == NormKind::kLayer) list.push_back({name + ".bias", {config.hidden_size}});
}

// Adds a matrix [rows, columns] of a layer, and its bias if it has one.
void AddMatrix(int32_t layer, std::string_view part, int64_t rows, int64_t columns, bool bias,
               std::vector<TensorSpec>& list) {
  list.push_back({LayerTensor(layer, part), {rows, columns}});
  if (bias) list.push_back({LayerTensor(layer, part, "bias"), {rows}});
}

void AddLayer(const ModelConfig& config, int32_t layer, std::vector<TensorSpec>& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.feed_forward_size;
  const int64_t queries = int64_t{config.num_heads} * config.head_dim;
  const int64_t keys = int64_t{config.num_kv_heads} * config.head_dim;
  const auto norm = [&](std::string_view part) {
    AddNorm(config, absl::StrCat("blk.", layer, ".", std::string(part)), list);
  };
  norm("attn_norm");
  AddMatrix(layer, "attn_q", queries, hidden, config.attention_bias, list);
  AddMatrix(layer, "attn_k", keys, hidden, config.attention_bias, list);
  AddMatrix(layer, "attn_v", keys, hidden, config.attention_bias, list);
  AddMatrix(layer, "attn_output", hidden, queries, config.output_bias, list);
  if (config.query_key_norm) {
    list.push_back({LayerTensor(layer, "attn_q_norm"), {config.head_dim}});
    list.push_back({LayerTensor(layer, "attn_k_norm"), {config.head_dim}});
  }
  if (config.post_norms) norm("post_attention_norm");
  norm("ffn_norm");
  if (config.gated) {
    AddMatrix(layer, "ffn_gate", inner, hidden, config.feed_forward_bias, list);
  }
  AddMatrix(layer, "ffn_up", inner, hidden, config.feed_forward_bias, list);
  AddMatrix(layer, "ffn_down", hidden, inner, config.feed_forward_bias, list);
  if (config.post_norms) norm("post_ffw_norm");
}

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FamilyOfArchitecture(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (!family.name.empty() && family.name == name) return &family;
  }
  return nullptr;
}

const Family* FamilyOfModelType(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

void ApplyFamily(const Family& family, ModelConfig& config) {
  config.architecture = std::string(family.name.empty() ? family.model_type : family.name);
  config.norm = family.norm;
  config.activation = family.activation;
  config.gated = family.gated;
  config.query_key_norm = family.query_key_norm;
  config.post_norms = family.post_norms;
  config.attention_bias |= family.query_key_value_bias;
  config.output_bias |= family.all_biases;
  config.feed_forward_bias |= family.all_biases;
  config.learned_positions = family.learned_positions;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  if (family.scales_embedding) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.hidden_size));
  }
}

void SlideLayers(int32_t window, int32_t period, ModelConfig& config) {
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
    const bool full = period > 0 && (layer + 1) % period == 0;
    config.layers[layer].window = full ? 0 : window;
  }
}

std::string LayerTensor(int32_t layer, std::string_view part, std::string_view ending) {
  return absl::StrCat("blk.", layer, ".", std::string(part), ".", std::string(ending));
}

std::vector<TensorSpec> TensorsOf(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t vocabulary = config.vocab_size;
  std::vector<TensorSpec> list = {{"token_embd.weight", {vocabulary, hidden}}};
  if (config.learned_positions) {
    list.push_back({"position_embd.weight", {config.context_length, hidden}});
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) AddLayer(config, layer, list);
  AddNorm(config, "output_norm", list);
  if (!config.tied_head) list.push_back({"output.weight", {vocabulary, hidden}});
  return list;
}

}  // namespace paceline
