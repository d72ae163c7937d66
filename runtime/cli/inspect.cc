#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "models/chat_template.h"
#include "models/cpu/machine.h"
#include "models/cpu/packed_matrix.h"
#include "models/slice.h"
#include "models/weight_source.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/models.h"
#include "runtime/cli/output.h"
#include "runtime/report.h"

namespace paceline::cli {
namespace {

struct TypeUse {
  int64_t tensors = 0;
  int64_t bytes = 0;
  std::string computed_as;  // By the fast engine; another type where it lacks a kernel.
};

std::map<std::string, TypeUse> TypesOf(const WeightSource& weights) {
  std::map<std::string, TypeUse> types;
  for (const TensorView& tensor : weights.tensors()) {
    TypeUse& use = types[std::string(BlockTypeName(tensor.type))];
    ++use.tensors;
    use.bytes += static_cast<int64_t>(tensor.bytes.size());
    use.computed_as = std::string(BlockTypeName(cpu::PackedType(tensor.type)));
  }
  return types;
}

int64_t NumParameters(const WeightSource& weights) {
  int64_t count = 0;
  for (const TensorView& tensor : weights.tensors()) count += tensor.num_elements();
  return count;
}

Json RotaryJson(const ModelConfig& config) {
  Json json = Json::array();
  for (const Rotary& rotary : config.rotaries) {
    json.push_back({{"base", rotary.base}, {"scaling", rotary.scaling}});
  }
  return json;
}

// Null, or the window's size and how many layers have it.
Json WindowJson(const ModelConfig& config) {
  int32_t window = 0;
  int64_t layers = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0) window = layer.window, ++layers;
  }
  return layers == 0 ? Json(nullptr) : Json{{"positions", window}, {"layers", layers}};
}

Json ModelJson(const std::string& path, const WeightSource& weights) {
  const ModelConfig& config = weights.config();
  Json types;
  for (const auto& [name, use] : TypesOf(weights)) {
    types[name] = {{"tensors", use.tensors}, {"bytes", use.bytes}, {"computed_as", use.computed_as}};
  }
  return {{"file", path},
          {"file_bytes", weights.file_bytes()},
          {"architecture", config.architecture},
          {"num_layers", config.num_layers},
          {"hidden_size", config.hidden_size},
          {"feed_forward_size", config.feed_forward_size},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"context_length", config.context_length},
          {"vocab_size", config.vocab_size},
          {"rotary", RotaryJson(config)},
          {"sliding_window", WindowJson(config)},
          {"num_parameters", NumParameters(weights)},
          {"tied_embedding", config.tied_head},
          {"tensor_types", types}};
}

Json SpecialJson(const TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<int32_t>> specials[] = {{"begin", spec.bos_id},
                                                                     {"end", spec.eos_id},
                                                                     {"end_of_turn", spec.eot_id},
                                                                     {"pad", spec.pad_id},
                                                                     {"unknown", spec.unknown_id}};
  Json json = Json::object();
  for (const auto& [name, id] : specials) {
    if (!id) continue;
    const bool known = *id >= 0 && static_cast<size_t>(*id) < spec.tokens.size();
    json[name] = {{"id", *id}, {"piece", known ? spec.tokens[*id] : ""}};
  }
  return json;
}

// The value, or null with the reason beside it.
Json TokenizerJson(const TokenizerSpec& spec) {
  const absl::Status usable = Tokenizer::Create(spec).status();
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Recognise(spec);
  const auto reason = [](const absl::Status& status) {
    return status.ok() ? Json(nullptr) : Json(std::string(status.message()));
  };
  return {{"model", spec.model},
          {"pre", spec.pre},
          {"num_tokens", spec.tokens.size()},
          {"num_merges", spec.merges.size()},
          {"add_begin", spec.add_bos},
          {"special_tokens", SpecialJson(spec)},
          {"unusable", reason(usable)},
          {"chat_template", chat.ok() ? Json(chat->family()) : Json(nullptr)},
          {"no_chat_template", reason(chat.status())}};
}

std::string Line(absl::string_view name, absl::string_view value) {
  return absl::StrFormat("%-14s %s\n", name, value);
}

std::string ModelText(const Json& model) {
  const auto number = [&](const char* key) { return model[key].get<int64_t>(); };
  std::string text = Line("file", model["file"].get<std::string>());
  text += Line("size", absl::StrFormat("%.1f MB, %.1f million parameters",
                                       static_cast<double>(number("file_bytes")) / 1e6,
                                       static_cast<double>(number("num_parameters")) / 1e6));
  text += Line("architecture", model["architecture"].get<std::string>());
  text += Line("layers", absl::StrCat(number("num_layers")));
  text += Line("widths", absl::StrCat("hidden ", number("hidden_size"), ", feed-forward ",
                                      number("feed_forward_size")));
  text += Line("heads", absl::StrCat(number("num_heads"), " of size ", number("head_dim"), ", ",
                                     number("num_kv_heads"), " for keys and values"));
  text += Line("context", absl::StrCat(number("context_length"), " tokens"));
  std::string positions = model["rotary"].empty() ? "learned" : "";
  for (const Json& rotary : model["rotary"]) {
    absl::StrAppend(&positions, positions.empty() ? "" : "; ", "rotary, base ",
                    rotary["base"].get<double>());
    if (rotary["scaling"] != "none") {
      absl::StrAppend(&positions, ", scaled: ", rotary["scaling"].get<std::string>());
    }
  }
  text += Line("positions", positions);
  if (const Json& window = model["sliding_window"]; !window.is_null()) {
    text += Line("window", absl::StrCat("the last ", window["positions"].get<int64_t>(), " in ",
                                        window["layers"].get<int64_t>(), " of the layers"));
  }
  text += Line("vocabulary",
               absl::StrCat(number("vocab_size"), " rows, output head ",
                            model["tied_embedding"].get<bool>() ? "shared with the embedding"
                                                                : "of its own"));
  absl::string_view name = "tensors";
  for (const auto& [type, use] : model["tensor_types"].items()) {
    const auto computed_as = use["computed_as"].get<std::string>();
    text += Line(name, absl::StrFormat(
                           "%-6s %4d tensors, %.1f MB%s", type, use["tensors"].get<int64_t>(),
                           static_cast<double>(use["bytes"].get<int64_t>()) / 1e6,
                           computed_as == type ? ""
                                               : "; no kernel of its own, computed as " + computed_as));
    name = "";
  }
  return text;
}

std::string TokenizerText(const Json& tokenizer) {
  std::string text =
      Line("tokenizer", absl::StrCat(tokenizer["model"].get<std::string>(), ", pre-tokenizer ",
                                     tokenizer["pre"].get<std::string>(), ", ",
                                     tokenizer["num_tokens"].get<int64_t>(), " tokens, ",
                                     tokenizer["num_merges"].get<int64_t>(), " merges"));
  if (!tokenizer["unusable"].is_null()) {
    text += Line("", absl::StrCat("not usable: ", tokenizer["unusable"].get<std::string>()));
  }
  absl::string_view name = "specials";
  for (const auto& [role, token] : tokenizer["special_tokens"].items()) {
    text += Line(name, absl::StrFormat("%-11s %6d  %s", role, token["id"].get<int64_t>(),
                                       absl::Utf8SafeCEscape(token["piece"].get<std::string>())));
    name = "";
  }
  const bool chat = tokenizer["chat_template"].is_string();
  return text + Line("chat template",
                     tokenizer[chat ? "chat_template" : "no_chat_template"].get<std::string>());
}

absl::Status InspectMachine(bool json) {
  PACELINE_ASSIGN_OR_RETURN(const cpu::MachineLimits limits, cpu::MeasureMachine("", 0));
  const std::vector<std::string> isas = cpu::RunnableIsas();
  Output out;
  if (json) {
    out.Write(JsonText({{"isa", isas.front()},
                        {"isas", isas},
                        {"threads", cpu::ThreadsFor(0)},
                        {"stream_gb_per_s", limits.stream_gb_per_s},
                        {"multiply_gmac_per_s", limits.multiply_gmac_per_s}}) +
              "\n");
    return out.status();
  }
  out.Write(Line("isa", absl::StrCat(isas.front(), " (runnable: ", absl::StrJoin(isas, ", "), ")")) +
            Line("threads", absl::StrCat(cpu::ThreadsFor(0))) +
            Line("memory", absl::StrFormat("%.1f GB/s read by all threads", limits.stream_gb_per_s)) +
            Line("arithmetic", absl::StrFormat("%.0f GMAC/s of int8 x 4 bits, all threads",
                                               limits.multiply_gmac_per_s)));
  return out.status();
}

absl::Status Inspect(const InspectOptions& options) {
  if (options.machine != options.file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("FILE: expected a model or --machine, got ",
                                                   options.machine ? "both" : "neither"));
  }
  if (options.machine) return InspectMachine(options.json);
  std::string file = options.file;
  PACELINE_RETURN_IF_ERROR(ResolveModelName(file));
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> weights, OpenModel(file));
  Json json = ModelJson(file, *weights);
  const Json tokenizer = TokenizerJson(weights->tokenizer());
  Output out;
  if (options.json) {
    json["tokenizer"] = tokenizer;
    out.Write(JsonText(json) + "\n");
  } else {
    out.Write(ModelText(json) + TokenizerText(tokenizer));
  }
  return out.status();
}

}  // namespace

int RunInspect(const InspectOptions& options) { return ReportStatus(Inspect(options)); }

int RunSlice(const SliceOptions& options) {
  return ReportStatus(SliceModel(options.in, options.out, options.layers));
}

}  // namespace paceline::cli
