#include "models/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/family.h"
#include "models/tensor_list.h"
#include "models/tokenizer.h"

namespace paceline {
namespace {

absl::StatusOr<const Family*> FindFamily(const GgufFile& file) {
  PACELINE_ASSIGN_OR_RETURN(const std::string name, file.String("general.architecture"));
  if (const Family* family = FamilyOfArchitecture(name)) return family;
  std::string known;
  for (const Family& family : Families()) {
    if (family.name.empty()) continue;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.name));
  }
  return absl::UnimplementedError(absl::StrCat(file.name(), ": architecture: expected one of ",
                                               known, ", got ", PrintableName(name)));
}

// Reads keys of one architecture; the first failure stays.
class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  int32_t Size(std::string_view key) { return Narrow(key, file_.Integer(Full(key))); }
  int32_t Size(std::string_view key, int64_t fallback) {
    return Narrow(key, file_.Integer(Full(key), fallback));
  }
  float Real(std::string_view key) { return Narrow(file_.Number(Full(key))); }
  float Real(std::string_view key, double fallback) {
    return Narrow(file_.Number(Full(key), fallback));
  }
  // Refuses a feature that is not computed yet.
  void Refuse(std::string_view key, bool present) {
    if (!present) return;
    Keep(absl::UnimplementedError(
        absl::StrCat(file_.name(), ": key ", PrintableName(Full(key)), ": not supported yet")));
  }
  std::string Full(std::string_view key) const {
    return absl::StrCat(prefix_, ".", std::string(key));
  }
  const absl::Status& status() const { return status_; }

 private:
  void Keep(const absl::Status& status) { status_.Update(status); }

  float Narrow(const absl::StatusOr<double>& number) {
    Keep(number.status());
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::clamp(number.value_or(0), -kLargest, kLargest));
  }

  int32_t Narrow(std::string_view key, const absl::StatusOr<int64_t>& value) {
    Keep(value.status());
    if (!value.ok()) return 0;
    if (*value >= 0 && *value <= std::numeric_limits<int32_t>::max()) {
      return static_cast<int32_t>(*value);
    }
    Keep(file_.Damaged(absl::StrCat("key ", PrintableName(Full(key))), "a 31-bit number",
                       absl::StrCat(*value)));
    return 0;
  }

  const GgufFile& file_;
  std::string prefix_;
  absl::Status status_;
};

// What is computed in no family, or only where a key says nothing unusual.
void RefuseUnsupported(const GgufFile& file, const ModelConfig& config, ConfigReader& reader) {
  reader.Refuse("expert_count", reader.Size("expert_count", 0) > 0);
  for (const std::string_view key :
       {"attn_logit_softcapping", "final_logit_softcapping", "attention.max_alibi_bias",
        "attention.clamp_kqv", "logit_scale", "embedding_scale", "residual_scale"}) {
    reader.Refuse(key, reader.Real(key, 0.0) != 0);
  }
  reader.Refuse("rope.scaling.attn_factor", reader.Real("rope.scaling.attn_factor", 1.0) != 1);
  reader.Refuse("attention.value_length",
                reader.Size("attention.value_length", config.head_dim) != config.head_dim);
  reader.Refuse("rope.dimension_count",
                reader.Size("rope.dimension_count", config.head_dim) != config.head_dim);
  const absl::StatusOr<bool> causal = file.Bool(reader.Full("attention.causal"), true);
  reader.Refuse("attention.causal", !causal.value_or(false));
}

void ReadSizes(const Family& family, ConfigReader& reader, ModelConfig& config) {
  config.num_layers = reader.Size("block_count");
  config.hidden_size = reader.Size("embedding_length");
  config.feed_forward_size = reader.Size("feed_forward_length");
  config.num_heads = reader.Size("attention.head_count");
  config.num_kv_heads = reader.Size("attention.head_count_kv", config.num_heads);
  const int32_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = reader.Size("attention.key_length", even_share);
  config.context_length = reader.Size("context_length");
  config.norm_epsilon =
      reader.Real(family.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                : "attention.layer_norm_epsilon");
}

const TensorView* FindTensor(const GgufFile& file, std::string_view name) {
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// What only the tensors tell: the vocabulary's size, a head of its own, biases.
absl::Status ReadTensorFacts(const GgufFile& file, ModelConfig& config) {
  const TensorView* embedding = FindTensor(file, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 ||
      embedding->shape[0] > std::numeric_limits<int32_t>::max()) {
    return file.Damaged("tensor 'token_embd.weight'", "a matrix", embedding ? "another" : "none");
  }
  config.vocab_size = static_cast<int32_t>(embedding->shape[0]);
  config.tied_head = FindTensor(file, "output.weight") == nullptr;
  config.attention_bias = FindTensor(file, LayerTensor(0, "attn_q", "bias")) != nullptr;
  config.output_bias = FindTensor(file, LayerTensor(0, "attn_output", "bias")) != nullptr;
  config.feed_forward_bias = FindTensor(file, LayerTensor(0, "ffn_up", "bias")) != nullptr;
  return absl::OkStatus();
}

constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// The rotation by its keys and, where the file has them, the factors of its frequencies.
absl::StatusOr<Rotary> ReadRotary(const GgufFile& file, const ModelConfig& config,
                                  ConfigReader& reader) {
  Rotary rotary = PlainRotary(reader.Real("rope.freq_base", 10000.0), config.head_dim);
  const absl::StatusOr<std::string> type = file.String(reader.Full("rope.scaling.type"), "linear");
  reader.Refuse("rope.scaling.type", !type.ok() || (*type != "none" && *type != "linear"));
  // Without a type the factor means linear scaling; the second key is its older name.
  for (const std::string_view key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const float factor = reader.Real(key, 0.0);
    if (factor == 0 || factor == 1 || type.value_or("") == "none") continue;
    if (!(factor > 0)) {
      return file.Damaged(absl::StrCat("key ", PrintableName(reader.Full(key))),
                          "a positive number", absl::StrCat(factor));
    }
    rotary = ScaledLinearly(std::move(rotary), factor);
    break;
  }
  const TensorView* factors = FindTensor(file, kRopeFactors);
  if (factors == nullptr) return rotary;
  std::vector<float> values(rotary.frequencies.size());
  if (factors->shape != std::vector<int64_t>{std::ssize(values)} ||
      !Dequantise(factors->type, factors->bytes, std::span<float>(values)).ok()) {
    return file.Damaged(absl::StrCat("tensor ", PrintableName(kRopeFactors)),
                        absl::StrCat("a factor for each of ", values.size(), " pairs of a head"),
                        absl::StrCat(factors->num_elements()));
  }
  return DividedBy(std::move(rotary), values);
}

// Which layers slide: by a period, or layer by layer.
absl::Status ReadWindows(const GgufFile& file, const Family& family, ConfigReader& reader,
                         ModelConfig& config) {
  const int32_t window = reader.Size("attention.sliding_window", 0);
  if (window == 0) return absl::OkStatus();
  const std::string key = reader.Full("attention.sliding_window_pattern");
  const absl::StatusOr<const GgufArray*> array = file.Array(key);
  if (!array.ok()) {  // A number or nothing.
    SlideLayers(window, reader.Size("attention.sliding_window_pattern", family.window_period),
                config);
    return absl::OkStatus();
  }
  if (!(*array)->has_integers() || (*array)->size != config.num_layers) {
    return file.Damaged(absl::StrCat("key ", PrintableName(key)),
                        absl::StrCat("an entry for each of ", config.num_layers, " layers"),
                        absl::StrCat((*array)->size));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    config.layers[layer].window = (*array)->Integer(layer) != 0 ? window : 0;
  }
  return absl::OkStatus();
}

absl::Status ReadRotaries(const GgufFile& file, const Family& family, ConfigReader& reader,
                          ModelConfig& config) {
  if (family.learned_positions) return absl::OkStatus();
  config.rope_interleaved = family.gguf_interleaved;
  PACELINE_ASSIGN_OR_RETURN(Rotary rotary, ReadRotary(file, config, reader));
  config.rotaries.push_back(std::move(rotary));
  if (family.sliding_rope_base == 0) return absl::OkStatus();
  config.rotaries.push_back(
      PlainRotary(reader.Real("rope.freq_base_swa", family.sliding_rope_base), config.head_dim));
  for (LayerConfig& layer : config.layers) layer.rotary = layer.window > 0 ? 1 : 0;
  return absl::OkStatus();
}

// Gemma 3 of 27 billion parameters, the one with 62 layers, scales by the share of a head in the
// hidden size; its head size is another.
void ReadAttentionScale(const Family& family, ConfigReader& reader, ModelConfig& config) {
  if (family.name == "gemma3" && config.num_layers == 62) {
    config.attention_scale =
        std::sqrt(static_cast<float>(config.num_heads) / static_cast<float>(config.hidden_size));
  }
  config.attention_scale = reader.Real("attention.scale", config.attention_scale);
}

using Kind = TokenizerSpec::TokenKind;

absl::Status ReadTokens(const GgufFile& file, TokenizerSpec& spec) {
  PACELINE_ASSIGN_OR_RETURN(const GgufArray* tokens, file.Array("tokenizer.ggml.tokens"));
  if (!tokens->has_strings()) {
    return file.Damaged("key 'tokenizer.ggml.tokens'", "strings", "an array of another type");
  }
  spec.tokens.assign(tokens->strings.begin(), tokens->strings.end());
  spec.kinds.assign(spec.tokens.size(), Kind::kNormal);
  if (!file.Has("tokenizer.ggml.token_type")) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const GgufArray* kinds, file.Array("tokenizer.ggml.token_type"));
  const auto expected = static_cast<int64_t>(spec.tokens.size());
  if (!kinds->has_integers() || kinds->size != expected) {
    return file.Damaged("key 'tokenizer.ggml.token_type'",
                        absl::StrCat(expected, " integers, one a token"),
                        absl::StrCat(kinds->size, kinds->has_integers() ? "" : " others"));
  }
  for (int64_t i = 0; i < kinds->size; ++i) {
    const int64_t kind = kinds->Integer(i);
    if (kind < 1 || kind > 6) {
      return file.Damaged("key 'tokenizer.ggml.token_type'", "kinds in [1, 6]", absl::StrCat(kind));
    }
    spec.kinds[i] = static_cast<Kind>(kind);
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const GgufFile& file, TokenizerSpec& spec) {
  if (!file.Has("tokenizer.ggml.merges")) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const GgufArray* merges, file.Array("tokenizer.ggml.merges"));
  if (!merges->has_strings()) {
    return file.Damaged("key 'tokenizer.ggml.merges'", "strings", "an array of another type");
  }
  spec.merges.reserve(merges->strings.size());
  for (const std::string_view text : merges->strings) {
    absl::StatusOr<TokenizerSpec::Merge> merge = ParseMerge(text);
    if (!merge.ok()) {
      return absl::DataLossError(absl::StrCat(file.name(), ": key 'tokenizer.ggml.merges': merge ",
                                              spec.merges.size(), ": ", merge.status().message()));
    }
    spec.merges.push_back(*std::move(merge));
  }
  return absl::OkStatus();
}

absl::Status ReadScores(const GgufFile& file, TokenizerSpec& spec) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  PACELINE_ASSIGN_OR_RETURN(const GgufArray* scores, file.Array(kKey));
  const auto expected = static_cast<int64_t>(spec.tokens.size());
  if (scores->has_strings() || scores->has_integers() || scores->size != expected) {
    return file.Damaged(absl::StrCat("key '", std::string(kKey), "'"),
                        absl::StrCat(expected, " numbers, one a token"),
                        absl::StrCat(scores->size, scores->has_integers() ? " others" : ""));
  }
  for (int64_t i = 0; i < scores->size; ++i) {
    spec.scores.push_back(static_cast<float>(scores->Number(i)));
  }
  return absl::OkStatus();
}

// Vocabularies of SentencePiece: characters are merged by scores, spaces are written as U+2581.
absl::Status ReadCharacterTokenizer(const GgufFile& file, TokenizerSpec& spec) {
  spec.pre.clear();
  spec.space_mark = "\u2581";
  spec.fuses_unknown = true;
  PACELINE_RETURN_IF_ERROR(ReadScores(file, spec));
  PACELINE_ASSIGN_OR_RETURN(const bool prefix, file.Bool("tokenizer.ggml.add_space_prefix", true));
  spec.drops_first_space = prefix;
  if (prefix) spec.normalisers.push_back({TextStep::Kind::kPrepend, "", " "});
  spec.normalisers.push_back({TextStep::Kind::kReplace, " ", spec.space_mark});
  return absl::OkStatus();
}

absl::Status ReadSpecialId(const GgufFile& file, std::string_view name, int64_t vocab_size,
                           std::optional<int32_t>& id) {
  const std::string key = absl::StrCat("tokenizer.ggml.", std::string(name), "_token_id");
  if (!file.Has(key)) return absl::OkStatus();
  PACELINE_ASSIGN_OR_RETURN(const int64_t value, file.Integer(key));
  if (value < 0 || value >= vocab_size) {
    return file.Damaged(absl::StrCat("key '", key, "'"),
                        absl::StrCat("an id in [0, ", vocab_size, ")"), absl::StrCat(value));
  }
  id = static_cast<int32_t>(value);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> GgufModelConfig(const GgufFile& file) {
  PACELINE_ASSIGN_OR_RETURN(const Family* family, FindFamily(file));
  ConfigReader reader(file, family->name);
  ModelConfig config;
  const auto as_damage = [&](const absl::Status& status) {
    return status.ok() ? status
                       : absl::DataLossError(absl::StrCat(file.name(), ": ", status.message()));
  };
  ReadSizes(*family, reader, config);
  PACELINE_RETURN_IF_ERROR(reader.status());
  PACELINE_RETURN_IF_ERROR(ReadTensorFacts(file, config));
  PACELINE_RETURN_IF_ERROR(as_damage(config.ValidateSizes()));
  config.layers.resize(config.num_layers);
  ApplyFamily(*family, config);
  ReadAttentionScale(*family, reader, config);
  RefuseUnsupported(file, config, reader);
  PACELINE_RETURN_IF_ERROR(ReadWindows(file, *family, reader, config));
  PACELINE_RETURN_IF_ERROR(ReadRotaries(file, *family, reader, config));
  PACELINE_RETURN_IF_ERROR(reader.status());
  PACELINE_RETURN_IF_ERROR(as_damage(config.Validate()));
  return config;
}

absl::StatusOr<TokenizerSpec> GgufTokenizer(const GgufFile& file) {
  TokenizerSpec spec;
  PACELINE_ASSIGN_OR_RETURN(spec.model, file.String("tokenizer.ggml.model"));
  PACELINE_ASSIGN_OR_RETURN(spec.pre, file.String("tokenizer.ggml.pre", "default"));
  PACELINE_RETURN_IF_ERROR(ReadTokens(file, spec));
  const bool of_characters = spec.model == "llama";
  PACELINE_RETURN_IF_ERROR(of_characters ? ReadCharacterTokenizer(file, spec)
                                         : ReadMerges(file, spec));
  const std::pair<std::string_view, std::optional<int32_t>*> ids[] = {
      {"bos", &spec.bos_id},         {"eos", &spec.eos_id},     {"eot", &spec.eot_id},
      {"unknown", &spec.unknown_id}, {"padding", &spec.pad_id},
  };
  for (const auto& [name, id] : ids) {
    PACELINE_RETURN_IF_ERROR(
        ReadSpecialId(file, name, static_cast<int64_t>(spec.tokens.size()), *id));
  }
  // The pattern set of Llama 3 implies both; GGUF has no key for the first.
  spec.ignore_merges = spec.pre == "llama-bpe" || spec.pre == "llama3";
  PACELINE_ASSIGN_OR_RETURN(
      spec.add_bos, file.Bool("tokenizer.ggml.add_bos_token", of_characters || spec.ignore_merges));
  PACELINE_ASSIGN_OR_RETURN(spec.chat_template, file.String("tokenizer.chat_template", ""));
  return spec;
}

absl::StatusOr<std::vector<TensorView>> GgufTensors(const GgufFile& file,
                                                    const ModelConfig& config) {
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : file.tensors()) {
    if (IsFused(tensor.name)) {
      PACELINE_RETURN_IF_ERROR(SplitFused(file.name(), config, tensor, tensors));
    } else if (tensor.name != kRopeFactors || config.rotaries.empty()) {
      tensors.push_back(tensor);
    }
  }
  PACELINE_RETURN_IF_ERROR(CheckTensors(file.name(), config, tensors));
  return tensors;
}

}  // namespace paceline
