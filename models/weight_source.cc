#include "models/weight_source.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/folder_source.h"
#include "models/gguf.h"
#include "models/gguf_model.h"
#include "models/mapped_file.h"

namespace paceline {
namespace {

class GgufSource : public WeightSource {
 public:
  GgufSource(MappedFile mapping, ModelConfig config, TokenizerSpec tokenizer,
             std::vector<TensorView> tensors)
      : mapping_(std::move(mapping)),
        config_(std::move(config)),
        tokenizer_(std::move(tokenizer)),
        tensors_(std::move(tensors)) {}

  const ModelConfig& config() const override { return config_; }
  const TokenizerSpec& tokenizer() const override { return tokenizer_; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  void ReleasePages() const override { mapping_.ReleasePages(); }
  int64_t file_bytes() const override { return static_cast<int64_t>(mapping_.bytes().size()); }

 private:
  MappedFile mapping_;
  ModelConfig config_;
  TokenizerSpec tokenizer_;
  std::vector<TensorView> tensors_;
};

absl::StatusOr<std::unique_ptr<WeightSource>> OpenGguf(const std::string& path) {
  PACELINE_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  PACELINE_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Parse(mapping.bytes(), path));
  PACELINE_ASSIGN_OR_RETURN(ModelConfig config, GgufModelConfig(file));
  PACELINE_ASSIGN_OR_RETURN(std::vector<TensorView> tensors, GgufTensors(file, config));
  PACELINE_ASSIGN_OR_RETURN(TokenizerSpec tokenizer, GgufTokenizer(file));
  return std::make_unique<GgufSource>(std::move(mapping), std::move(config), std::move(tokenizer),
                                      std::move(tensors));
}

// The folder that a path means: itself, or that of a file of such a folder; empty for other files.
std::string FolderOf(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return path.string();
  const bool of_folder = path.extension() == ".safetensors" || path.filename() == "config.json";
  if (!of_folder || !std::filesystem::exists(path, error)) return "";
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

}  // namespace

int64_t TensorView::num_elements() const {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  return elements;
}

absl::StatusOr<const TensorView*> WeightSource::Find(absl::string_view name) const {
  for (const TensorView& tensor : tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return absl::NotFoundError(absl::StrCat("tensor ", PrintableName(std::string(name)),
                                          ": expected in the model file, got none"));
}

absl::StatusOr<std::unique_ptr<WeightSource>> OpenModel(const std::string& path) {
  const std::string folder = FolderOf(path);
  absl::StatusOr<std::unique_ptr<WeightSource>> source =
      folder.empty() ? OpenGguf(path) : OpenFolder(folder);
  if (!source.ok()) return source;
  const auto tokens = static_cast<int64_t>((*source)->tokenizer().tokens.size());
  if (tokens <= (*source)->config().vocab_size) return source;
  return absl::DataLossError(absl::StrCat(path, ": embedding: expected a row for each of ", tokens,
                                          " tokens, got ", (*source)->config().vocab_size));
}

}  // namespace paceline
