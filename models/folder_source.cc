#include "models/folder_source.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/family.h"
#include "models/folder_config.h"
#include "models/gguf.h"
#include "models/json_reader.h"
#include "models/mapped_file.h"
#include "models/safetensors.h"
#include "models/tensor_list.h"
#include "models/tokenizer_json.h"

namespace paceline {
namespace {

using Json = nlohmann::json;

std::string In(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return ParseJsonObject(file.bytes(), path);
}

// An empty object if there is no such file.
absl::StatusOr<Json> ReadJsonIfThere(const std::string& path) {
  absl::StatusOr<Json> value = ReadJson(path);
  if (absl::IsNotFound(value.status())) return Json::object();
  return value;
}

// --- Tokenizer ---

// An id, or a list of ids.
std::vector<int32_t> ReadIds(const Json& object, const char* name, const std::string& file,
                             absl::Status& status) {
  JsonReader reader(object, file, status);
  std::vector<int32_t> ids;
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return ids;
  if (!found->is_array()) return {reader.Size({name})};
  for (const Json& id : *found) {
    const Json one = {{name, id}};
    ids.push_back(JsonReader(one, file, status).Size({name}));
  }
  return ids;
}

// The id of a token that a file names by its text, or by an object with it.
std::optional<int32_t> ReadNamedToken(const Json& object, const char* name, const std::string& file,
                                      const TokenizerSpec& spec, absl::Status& status) {
  JsonReader reader(object, file, status);
  if (!reader.Has(name)) return std::nullopt;
  const bool is_object = object[name].is_object();
  const std::string text =
      is_object ? JsonReader(object[name], absl::StrCat(file, ": ", name), status).Text({"content"})
                : reader.Text({name});
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id] == text && spec.kinds[id] != TokenizerSpec::TokenKind::kUnused) {
      return static_cast<int32_t>(id);
    }
  }
  return std::nullopt;  // Files name tokens that their vocabularies lack.
}

// A text, or a list of named ones of which "default" counts.
std::string ReadTemplate(const Json& object, const std::string& file, absl::Status& status) {
  JsonReader reader(object, file, status);
  if (!reader.Has("chat_template") || !object["chat_template"].is_array()) {
    return reader.Text({"chat_template"}, "");
  }
  for (const Json& entry : object["chat_template"]) {
    if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
    return JsonReader(entry, file + ": chat_template", status).Text({"template"});
  }
  return "";
}

// Newer folders have the template in a file of its own.
absl::Status ReadTemplateFile(const std::string& path, std::string& text) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  PACELINE_RETURN_IF_ERROR(file.status());
  if (file->bytes().size() > kMostConfigBytes) {
    return absl::DataLossError(absl::StrCat(path, ": expected at most ", kMostConfigBytes,
                                            " bytes, got ", file->bytes().size()));
  }
  text.assign(file->bytes().begin(), file->bytes().end());
  return absl::OkStatus();
}

// Adds what stands outside of tokenizer.json: special ids, whether the begin token is added, the
// chat template.
absl::Status ReadSpecials(const std::string& folder, const Json& config, TokenizerSpec& spec) {
  const std::string generation_file = In(folder, "generation_config.json");
  const std::string tokenizer_file = In(folder, "tokenizer_config.json");
  PACELINE_ASSIGN_OR_RETURN(const Json generation, ReadJsonIfThere(generation_file));
  PACELINE_ASSIGN_OR_RETURN(const Json tokenizer, ReadJsonIfThere(tokenizer_file));
  absl::Status status;
  const auto named = [&](const char* name) {
    return ReadNamedToken(tokenizer, name, tokenizer_file, spec, status);
  };
  const auto first = [](const std::vector<int32_t>& ids) {
    return ids.empty() ? std::nullopt : std::optional<int32_t>(ids.front());
  };
  const std::string config_file = In(folder, "config.json");
  const auto of_config = [&](const char* name) {
    return ReadIds(config, name, config_file, status);
  };
  const std::vector<int32_t> ends = of_config("eos_token_id");
  const std::vector<int32_t> generation_ends =
      ReadIds(generation, "eos_token_id", generation_file, status);
  const auto either = [](std::optional<int32_t> one, std::optional<int32_t> other) {
    return one ? one : other;
  };
  spec.eos_id = either(named("eos_token"), either(first(generation_ends), first(ends)));
  spec.more_end_ids = generation_ends.empty() ? ends : generation_ends;
  spec.pad_id = either(named("pad_token"), first(of_config("pad_token_id")));
  if (!spec.bos_id) spec.bos_id = either(named("bos_token"), first(of_config("bos_token_id")));
  JsonReader reader(tokenizer, tokenizer_file, status);
  spec.add_bos = reader.Flag({"add_bos_token"}, spec.add_bos);
  spec.chat_template = ReadTemplate(tokenizer, tokenizer_file, status);
  PACELINE_RETURN_IF_ERROR(status);
  return ReadTemplateFile(In(folder, "chat_template.jinja"), spec.chat_template);
}

absl::StatusOr<TokenizerSpec> ReadTokenizer(const std::string& folder, const Json& config) {
  const std::string path = In(folder, "tokenizer.json");
  PACELINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  PACELINE_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerFromJson(file.bytes(), path));
  PACELINE_RETURN_IF_ERROR(ReadSpecials(folder, config, spec));
  return spec;
}

// --- Tensors ---

// Splits "NAME.weight" at its last point.
std::pair<std::string_view, std::string_view> SplitEnding(std::string_view name) {
  const size_t point = name.rfind('.');
  if (point == std::string_view::npos) return {name, ""};
  return {name.substr(0, point), name.substr(point)};
}

// `to` with what "#" stands for in `from`, if `stem` is one of `from`.
std::optional<std::string> Renamed(std::string_view stem, std::string_view from,
                                   std::string_view to) {
  const size_t place = from.find('#');
  if (place == std::string_view::npos) {
    return stem == from ? std::optional<std::string>(to) : std::nullopt;
  }
  const std::string_view head = from.substr(0, place);
  const std::string_view tail = from.substr(place + 1);
  if (!stem.starts_with(head) || !stem.ends_with(tail) ||
      stem.size() <= head.size() + tail.size()) {
    return std::nullopt;
  }
  const std::string_view number = stem.substr(head.size(), stem.size() - head.size() - tail.size());
  if (!std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c); })) {
    return std::nullopt;
  }
  std::string name(to);
  return name.replace(name.find('#'), 1, number);
}

// The name that engines use; nullopt if the family has no such tensor.
std::optional<std::string> EngineName(const Family& family, std::string_view name) {
  if (name == "lm_head.weight") return "output.weight";
  if (name.starts_with(family.prefix)) name.remove_prefix(family.prefix.size());
  const auto [stem, ending] = SplitEnding(name);
  for (const TensorName& entry : family.names) {
    if (auto renamed = Renamed(stem, entry.folder, entry.gguf))
      return *renamed + std::string(ending);
  }
  return std::nullopt;
}

// The way back, for messages.
std::string FolderName(const Family& family, const std::string& name) {
  if (name == "output.weight") return "lm_head.weight";
  const auto [stem, ending] = SplitEnding(name);
  for (const TensorName& entry : family.names) {
    if (auto renamed = Renamed(stem, entry.gguf, entry.folder)) {
      return std::string(family.prefix) + *renamed + std::string(ending);
    }
  }
  return name;
}

// Buffers that some files hold besides weights: masks, and frequencies that the configuration
// gives.
bool IsBuffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

class FolderSource : public WeightSource {
 public:
  static absl::StatusOr<std::unique_ptr<FolderSource>> Open(const std::string& folder) {
    std::unique_ptr<FolderSource> source(new FolderSource(folder));
    const std::string config_file = In(folder, "config.json");
    PACELINE_ASSIGN_OR_RETURN(const Json config, ReadJson(config_file));
    PACELINE_ASSIGN_OR_RETURN(source->family_, FolderFamily(config, config_file));
    PACELINE_ASSIGN_OR_RETURN(source->config_, FolderConfig(config, *source->family_, config_file));
    PACELINE_RETURN_IF_ERROR(source->ReadFiles());
    PACELINE_RETURN_IF_ERROR(source->CheckAll());
    PACELINE_ASSIGN_OR_RETURN(source->tokenizer_, ReadTokenizer(folder, config));
    return source;
  }

  const ModelConfig& config() const override { return config_; }
  const TokenizerSpec& tokenizer() const override { return tokenizer_; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  void ReleasePages() const override {
    for (const MappedFile& file : files_) file.ReleasePages();
  }
  int64_t file_bytes() const override {
    int64_t bytes = 0;
    for (const MappedFile& file : files_) bytes += static_cast<int64_t>(file.bytes().size());
    return bytes;
  }

 private:
  explicit FolderSource(std::string folder) : folder_(std::move(folder)) {}

  // One file, or those that an index names.
  absl::Status ReadFiles() {
    const std::string index_name = "model.safetensors.index.json";
    const absl::Status single = ReadFile("model.safetensors", nullptr);
    if (!absl::IsNotFound(single)) return single;
    const std::string index_file = In(folder_, index_name);
    const absl::StatusOr<Json> index = ReadJson(index_file);
    if (absl::IsNotFound(index.status())) {
      return absl::NotFoundError(
          absl::StrCat(folder_, ": expected model.safetensors or ", index_name, ", got neither"));
    }
    PACELINE_RETURN_IF_ERROR(index.status());
    absl::Status status;
    const Json& map = JsonReader(*index, index_file, status).Object("weight_map");
    std::map<std::string, std::vector<std::string>> names;  // Of tensors, by file.
    for (const auto& [tensor, file] : map.items()) {
      const bool plain = file.is_string() && !file.get_ref<const std::string&>().empty() &&
                         file.get_ref<const std::string&>().find('/') == std::string::npos;
      if (!plain) {
        JsonReader(map, index_file + ": weight_map", status)
            .Fail(PrintableName(tensor), "the name of a file of the folder", ShortJson(file));
        return status;
      }
      names[file.get<std::string>()].push_back(tensor);
    }
    PACELINE_RETURN_IF_ERROR(status);
    for (const auto& [file, tensors] : names) {
      PACELINE_RETURN_IF_ERROR(ReadFile(file, &tensors));
    }
    return absl::OkStatus();
  }

  // `expected`: tensors that an index promises.
  absl::Status ReadFile(const std::string& name, const std::vector<std::string>* expected) {
    const std::string path = In(folder_, name);
    PACELINE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    files_.push_back(std::move(file));
    PACELINE_ASSIGN_OR_RETURN(const std::vector<TensorView> tensors,
                              ParseSafetensors(files_.back().bytes(), path));
    std::vector<std::string_view> names;
    for (const TensorView& tensor : tensors) {
      names.push_back(tensor.name);
      PACELINE_RETURN_IF_ERROR(AddTensor(path, tensor));
    }
    if (expected == nullptr) return absl::OkStatus();
    std::sort(names.begin(), names.end());
    for (const std::string& tensor : *expected) {
      if (std::binary_search(names.begin(), names.end(), tensor)) continue;
      return absl::DataLossError(absl::StrCat(path, ": tensor ", PrintableName(tensor),
                                              ": expected one, as the index says, got none"));
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const std::string& path, const TensorView& stored) {
    if (IsBuffer(stored.name)) return absl::OkStatus();
    const std::optional<std::string> name = EngineName(*family_, stored.name);
    if (!name) {
      return absl::UnimplementedError(absl::StrCat(path, ": tensor ", PrintableName(stored.name),
                                                   ": expected none of that name in ",
                                                   std::string(family_->model_type), ", got one"));
    }
    // Of a tied model it is the embedding once more.
    if (*name == "output.weight" && config_.tied_head) return absl::OkStatus();
    if (!seen_.insert(*name).second) {
      return absl::DataLossError(absl::StrCat(path, ": tensor ", PrintableName(stored.name),
                                              ": expected one of that name, got a second one"));
    }
    TensorView tensor = stored;
    tensor.name = *name;
    const bool of_layer = name->starts_with("blk.");
    if (family_->transposed && of_layer && tensor.shape.size() == 2) Transpose(tensor);
    if (family_->norms_less_one && name->find("norm") != std::string::npos) {
      PACELINE_RETURN_IF_ERROR(AddOne(tensor));
    }
    if (IsFused(*name)) return SplitFused(path, config_, tensor, tensors_);
    tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // The tensor's bytes become a copy that this source owns.
  std::span<uint8_t> Own(TensorView& tensor, size_t size) {
    copies_.emplace_back(size);
    tensor.bytes = copies_.back();
    return copies_.back();
  }

  void Transpose(TensorView& tensor) {
    const std::span<const uint8_t> from = tensor.bytes;
    const int64_t size = BlockSize(tensor.type);
    const int64_t rows = tensor.shape[0];
    const int64_t columns = tensor.shape[1];
    const std::span<uint8_t> to = Own(tensor, from.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        std::memcpy(to.data() + (column * rows + row) * size,
                    from.data() + (row * columns + column) * size, size);
      }
    }
    std::swap(tensor.shape[0], tensor.shape[1]);
  }

  absl::Status AddOne(TensorView& tensor) {
    std::vector<float> values(tensor.num_elements());
    PACELINE_RETURN_IF_ERROR(Dequantise(tensor.type, tensor.bytes, std::span<float>(values)));
    for (float& value : values) value += 1;
    tensor.type = BlockType::kF32;
    std::memcpy(Own(tensor, values.size() * sizeof(float)).data(), values.data(),
                values.size() * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status CheckAll() const {
    return CheckTensors(folder_, config_, tensors_,
                        [&](const std::string& name) { return FolderName(*family_, name); });
  }

  std::string folder_;
  const Family* family_ = nullptr;
  std::vector<MappedFile> files_;
  std::vector<std::vector<uint8_t>> copies_;
  ModelConfig config_;
  TokenizerSpec tokenizer_;
  std::vector<TensorView> tensors_;
  std::unordered_set<std::string> seen_;  // Names of engines, fused ones as they are.
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenFolder(const std::string& folder) {
  return FolderSource::Open(folder);
}

}  // namespace paceline
