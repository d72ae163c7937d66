#include "models/folder_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

using Json = nlohmann::json;

void ReadSizes(const Family& family, JsonReader& reader, ModelConfig& config) {
  config.num_layers = reader.Size({"num_hidden_layers", "n_layer"});
  config.hidden_size = reader.Size({"hidden_size", "n_embd"});
  config.num_heads = reader.Size({"num_attention_heads", "n_head"});
  config.num_kv_heads = reader.Size({"num_key_value_heads"}, config.num_heads);
  config.context_length = reader.Size({"max_position_embeddings", "n_positions", "n_ctx"});
  config.vocab_size = reader.Size({"vocab_size"});
  config.norm_epsilon = static_cast<float>(
      reader.Real({family.norm == NormKind::kRms ? "rms_norm_eps" : "layer_norm_epsilon"}));
  const int32_t even_share = config.num_heads > 0 ? config.hidden_size / config.num_heads : 0;
  config.head_dim = reader.Size({"head_dim"}, family.head_dim > 0 ? family.head_dim : even_share);
  // GPT-2 leaves it out where it is four times the width.
  const bool leaves_out = !family.gated && config.hidden_size < (1 << 24);
  config.feed_forward_size =
      reader.Size({"intermediate_size", "n_inner"},
                  leaves_out ? std::optional<int32_t>(4 * config.hidden_size) : std::nullopt);
  config.tied_head = reader.Flag({"tie_word_embeddings"}, family.tied_head);
}

// What is computed in no family, or only where a member says nothing unusual.
void RefuseUnsupported(const Family& family, JsonReader& reader) {
  const bool silu = family.activation == Activation::kSilu;
  const std::string usual = silu ? "silu" : "gelu_pytorch_tanh";
  const std::string activation =
      reader.Text({"hidden_activation", "hidden_act", "activation_function"}, usual);
  if (activation != usual && (silu || activation != "gelu_new")) {
    reader.Refuse("activation", ShortJson(activation));
  }
  for (const char* name : {"quantization_config", "num_experts", "num_local_experts",
                           "attn_logit_softcapping", "final_logit_softcapping"}) {
    if (reader.Has(name)) reader.Refuse(name, "a value");
  }
  for (const char* name :
       {"scale_attn_by_inverse_layer_idx", "add_cross_attention", "use_bidirectional_attention"}) {
    reader.RefuseUnless(name, false);
  }
  reader.RefuseUnless("scale_attn_weights", true);
  reader.RefuseUnless("partial_rotary_factor", 1.0);
}

// One rotation by its parameters: rope_type (older: type), factor and those of Llama 3.
Rotary ReadScaling(JsonReader& reader, Rotary rotary) {
  const std::string type = reader.Text({"rope_type", "type"}, "default");
  if (type == "default") return rotary;
  if (type != "linear" && type != "llama3") {
    reader.Refuse("rope_type", ShortJson(type));
    return rotary;
  }
  const double factor = reader.Real({"factor"});
  if (!(factor > 0)) {
    reader.Fail("factor", "a positive number", absl::StrCat(factor));
    return rotary;
  }
  if (type == "linear") return ScaledLinearly(std::move(rotary), factor);
  Llama3Scaling scaling;
  scaling.factor = factor;
  scaling.low_frequency_factor = reader.Real({"low_freq_factor"});
  scaling.high_frequency_factor = reader.Real({"high_freq_factor"});
  scaling.original_context = reader.Real({"original_max_position_embeddings"});
  const bool ordered = scaling.low_frequency_factor > 0 && scaling.original_context > 0 &&
                       scaling.high_frequency_factor > scaling.low_frequency_factor;
  if (!ordered) {
    reader.Fail("high_freq_factor", "0 < low_freq_factor < high_freq_factor and a context",
                "others");
    return rotary;
  }
  return ScaledAsLlama3(std::move(rotary), scaling);
}

// `base` is what older files say beside the parameters.
Rotary ReadRotary(const Json& parameters, const std::string& part, double base, int32_t head_dim,
                  absl::Status& status) {
  JsonReader reader(parameters, part, status);
  const double own_base = reader.Real({"rope_theta"}, base);
  return ReadScaling(reader, PlainRotary(static_cast<float>(own_base), head_dim));
}

constexpr double kUsualBase = 10000.0;

// Full layers have the first rotation; sliding ones of some families a second.
void ReadRotaries(const Family& family, JsonReader& reader, ModelConfig& config) {
  if (family.learned_positions) return;
  const bool two = family.sliding_rope_base > 0;
  const double base = reader.Real({"rope_theta"}, two ? 1e6 : kUsualBase);
  const char* name = reader.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json& parameters = reader.Object(name);
  const auto read = [&](const Json& object, const std::string& part, double fallback) {
    config.rotaries.push_back(ReadRotary(object, part, fallback, config.head_dim, reader.status()));
  };
  const std::string part = absl::StrCat(reader.part(), ": ", name);
  if (!two) return read(parameters, part, base);
  JsonReader kinds(parameters, part, reader.status());
  if (kinds.Has("full_attention")) {
    read(kinds.Object("full_attention"), part + ": full_attention", base);
    read(kinds.Object("sliding_attention"), part + ": sliding_attention", family.sliding_rope_base);
  } else {
    read(parameters, part, base);
    config.rotaries.push_back(PlainRotary(
        static_cast<float>(reader.Real({"rope_local_base_freq"}, family.sliding_rope_base)),
        config.head_dim));
  }
  for (LayerConfig& layer : config.layers) layer.rotary = layer.window > 0 ? 1 : 0;
}

void ReadLayerTypes(const Json& types, int32_t window, JsonReader& reader, ModelConfig& config) {
  if (static_cast<int64_t>(types.size()) != config.num_layers) {
    return reader.Fail("layer_types", absl::StrCat(config.num_layers, " of them"),
                       absl::StrCat(types.size()));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    const Json& type = types[layer];
    if (type != "full_attention" && type != "sliding_attention") {
      return reader.Refuse("layer_types", ShortJson(type));
    }
    if (type != "sliding_attention") continue;
    if (window == 0) return reader.Fail("sliding_window", "a number of positions", "none");
    config.layers[layer].window = window;
  }
}

void ReadWindows(const Family& family, JsonReader& reader, ModelConfig& config) {
  const int32_t window = reader.Size({"sliding_window"}, 0);
  if (reader.Has("layer_types")) {
    return ReadLayerTypes(reader.Array("layer_types"), window, reader, config);
  }
  if (!reader.Flag({"use_sliding_window"}, true)) return;
  const int32_t period = reader.Size({"sliding_window_pattern"}, family.window_period);
  SlideLayers(window, period, config);
  // Of Qwen: the first layers see everything.
  const int32_t full = reader.Size({"max_window_layers"}, 0);
  for (int32_t layer = 0; layer < std::min(full, config.num_layers); ++layer) {
    config.layers[layer].window = 0;
  }
}

}  // namespace

absl::StatusOr<const Family*> FolderFamily(const Json& root, const std::string& file) {
  absl::Status status;
  const std::string type = JsonReader(root, file, status).Text({"model_type"});
  PACELINE_RETURN_IF_ERROR(status);
  if (const Family* family = FamilyOfModelType(type)) return family;
  std::string known;
  for (const Family& family : Families()) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(family.model_type));
  }
  return absl::UnimplementedError(
      absl::StrCat(file, ": model_type: expected one of ", known, ", got ", ShortJson(type)));
}

absl::StatusOr<ModelConfig> FolderConfig(const Json& root, const Family& family,
                                         const std::string& file) {
  absl::Status status;
  JsonReader reader(root, file, status);
  const auto as_damage = [&](const absl::Status& problem) {
    return problem.ok() ? problem
                        : absl::DataLossError(absl::StrCat(file, ": ", problem.message()));
  };
  ModelConfig config;
  ReadSizes(family, reader, config);
  RefuseUnsupported(family, reader);
  PACELINE_RETURN_IF_ERROR(status);
  PACELINE_RETURN_IF_ERROR(as_damage(config.ValidateSizes()));
  config.layers.resize(config.num_layers);
  config.attention_bias = config.output_bias = reader.Flag({"attention_bias"}, false);
  config.feed_forward_bias = reader.Flag({"mlp_bias"}, false);
  ApplyFamily(family, config);
  config.attention_scale =
      static_cast<float>(1 / std::sqrt(reader.Real({"query_pre_attn_scalar"}, config.head_dim)));
  ReadWindows(family, reader, config);
  ReadRotaries(family, reader, config);
  PACELINE_RETURN_IF_ERROR(status);
  PACELINE_RETURN_IF_ERROR(as_damage(config.Validate()));
  return config;
}

}  // namespace paceline
