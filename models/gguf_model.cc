#include "models/gguf_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

// Architectures whose tensors and arithmetic are those of llama.
struct Architecture {
  std::string_view name;
  bool rope_interleaved;  // Rotary pairs are neighbouring rows in the file.
};
constexpr Architecture kArchitectures[] = {{"llama", true}};

absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file) {
  PACELINE_ASSIGN_OR_RETURN(const std::string name, file.String("general.architecture"));
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(architecture.name));
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

void RefuseUnsupported(const GgufFile& file, ConfigReader& reader) {
  reader.Refuse("attention.sliding_window", reader.Size("attention.sliding_window", 0) > 0);
  reader.Refuse("expert_count", reader.Size("expert_count", 0) > 0);
  const absl::StatusOr<std::string> scaling = file.String(reader.Full("rope.scaling.type"), "none");
  reader.Refuse("rope.scaling.type", scaling.value_or("") != "none");
  // Without a type the factor means linear scaling; the second key is its older name.
  for (const std::string_view key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const float factor = reader.Real(key, 1.0);
    reader.Refuse(key, factor != 0 && factor != 1 && !file.Has(reader.Full("rope.scaling.type")));
  }
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
  spec.merges.assign(merges->strings.begin(), merges->strings.end());
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

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Checks tensors by name; tells the first that is missing, misshapen or left over.
class TensorChecker {
 public:
  explicit TensorChecker(const GgufFile& file) : file_(file) {
    for (const TensorView& tensor : file.tensors()) by_name_[tensor.name] = &tensor;
  }

  bool Has(const std::string& name) const { return by_name_.contains(name); }

  absl::Status Expect(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = by_name_.find(name);
    const bool missing = found == by_name_.end();
    if (!missing && found->second->shape == shape) {
      by_name_.erase(found);
      return absl::OkStatus();
    }
    return file_.Damaged(absl::StrCat("tensor ", PrintableName(name)), ShapeText(shape),
                         missing ? "none" : ShapeText(found->second->shape));
  }

  // A bias or rope_freqs.weight, say, that would be left out of the computation.
  absl::Status ExpectNoOthers(const ModelConfig& config) const {
    for (const TensorView& tensor : file_.tensors()) {
      if (!by_name_.contains(tensor.name)) continue;
      return absl::UnimplementedError(
          absl::StrCat(file_.name(), ": tensor ", PrintableName(tensor.name), ": expected none in ",
                       config.architecture, " with ", config.num_layers, " layers, got one"));
    }
    return absl::OkStatus();
  }

 private:
  const GgufFile& file_;
  std::unordered_map<std::string_view, const TensorView*> by_name_;  // Not expected so far.
};

absl::Status CheckLayer(TensorChecker& tensors, const ModelConfig& config, int32_t layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.feed_forward_size;
  const int64_t queries = int64_t{config.num_heads} * config.head_dim;
  const int64_t keys = int64_t{config.num_kv_heads} * config.head_dim;
  const std::pair<std::string_view, std::vector<int64_t>> expected[] = {
      {"attn_norm", {hidden}},
      {"attn_q", {queries, hidden}},
      {"attn_k", {keys, hidden}},
      {"attn_v", {keys, hidden}},
      {"attn_output", {hidden, queries}},
      {"ffn_norm", {hidden}},
      {"ffn_gate", {inner, hidden}},
      {"ffn_up", {inner, hidden}},
      {"ffn_down", {hidden, inner}},
  };
  for (const auto& [name, shape] : expected) {
    PACELINE_RETURN_IF_ERROR(
        tensors.Expect(absl::StrCat("blk.", layer, ".", std::string(name), ".weight"), shape));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> GgufModelConfig(const GgufFile& file) {
  PACELINE_ASSIGN_OR_RETURN(const Architecture* architecture, FindArchitecture(file));
  ConfigReader reader(file, architecture->name);
  ModelConfig config;
  config.architecture = std::string(architecture->name);
  config.rope_interleaved = architecture->rope_interleaved;
  config.num_layers = reader.Size("block_count");
  config.hidden_size = reader.Size("embedding_length");
  config.feed_forward_size = reader.Size("feed_forward_length");
  config.num_heads = reader.Size("attention.head_count");
  config.num_kv_heads = reader.Size("attention.head_count_kv", config.num_heads);
  const int32_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = reader.Size("attention.key_length", even_share);
  config.context_length = reader.Size("context_length");
  config.rms_norm_epsilon = reader.Real("attention.layer_norm_rms_epsilon");
  config.rope_base = reader.Real("rope.freq_base", 10000.0);
  reader.Refuse("attention.value_length",
                reader.Size("attention.value_length", config.head_dim) != config.head_dim);
  reader.Refuse("rope.dimension_count",
                reader.Size("rope.dimension_count", config.head_dim) != config.head_dim);
  RefuseUnsupported(file, reader);
  PACELINE_RETURN_IF_ERROR(reader.status());
  for (const TensorView& tensor : file.tensors()) {
    if (tensor.name == "token_embd.weight" && tensor.shape.size() == 2 &&
        tensor.shape[0] <= std::numeric_limits<int32_t>::max()) {
      config.vocab_size = static_cast<int32_t>(tensor.shape[0]);
    }
  }
  if (config.vocab_size == 0) {
    return file.Damaged("tensor 'token_embd.weight'", "a matrix", "none");
  }
  if (const absl::Status valid = config.Validate(); !valid.ok()) {
    return absl::DataLossError(absl::StrCat(file.name(), ": ", valid.message()));
  }
  return config;
}

absl::StatusOr<TokenizerSpec> GgufTokenizer(const GgufFile& file) {
  TokenizerSpec spec;
  PACELINE_ASSIGN_OR_RETURN(spec.model, file.String("tokenizer.ggml.model"));
  PACELINE_ASSIGN_OR_RETURN(spec.pre, file.String("tokenizer.ggml.pre", "default"));
  PACELINE_RETURN_IF_ERROR(ReadTokens(file, spec));
  PACELINE_RETURN_IF_ERROR(ReadMerges(file, spec));
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
  PACELINE_ASSIGN_OR_RETURN(spec.add_bos,
                            file.Bool("tokenizer.ggml.add_bos_token", spec.ignore_merges));
  PACELINE_ASSIGN_OR_RETURN(spec.chat_template, file.String("tokenizer.chat_template", ""));
  return spec;
}

absl::Status CheckTensors(const GgufFile& file, const ModelConfig& config) {
  TensorChecker tensors(file);
  const int64_t hidden = config.hidden_size;
  const int64_t vocabulary = config.vocab_size;
  PACELINE_RETURN_IF_ERROR(tensors.Expect("token_embd.weight", {vocabulary, hidden}));
  PACELINE_RETURN_IF_ERROR(tensors.Expect("output_norm.weight", {hidden}));
  if (tensors.Has("output.weight")) {
    PACELINE_RETURN_IF_ERROR(tensors.Expect("output.weight", {vocabulary, hidden}));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    PACELINE_RETURN_IF_ERROR(CheckLayer(tensors, config, layer));
  }
  return tensors.ExpectNoOthers(config);
}

}  // namespace paceline
