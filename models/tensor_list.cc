#include "models/tensor_list.h"

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/family.h"
#include "models/gguf.h"

namespace paceline {
namespace {

constexpr std::string_view kFused = "attn_qkv";

absl::Status Damaged(const std::string& file, const std::string& tensor, std::string_view expected,
                     std::string_view got) {
  return absl::DataLossError(absl::StrCat(file, ": tensor ", PrintableName(tensor), ": expected ",
                                          std::string(expected), ", got ", std::string(got)));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

bool IsFused(std::string_view name) { return name.find(kFused) != std::string_view::npos; }

absl::Status SplitFused(const std::string& file, const ModelConfig& config, const TensorView& fused,
                        std::vector<TensorView>& tensors) {
  const int64_t keys = int64_t{config.num_kv_heads} * config.head_dim;
  const int64_t queries = int64_t{config.num_heads} * config.head_dim;
  if (fused.shape[0] != queries + 2 * keys) {
    return Damaged(file, fused.name, absl::StrCat(queries + 2 * keys, " rows"),
                   absl::StrCat(fused.shape[0]));
  }
  const auto row_bytes = static_cast<int64_t>(fused.bytes.size()) / fused.shape[0];
  int64_t first = 0;
  for (const auto& [part, rows] :
       {std::pair("attn_q", queries), std::pair("attn_k", keys), std::pair("attn_v", keys)}) {
    TensorView& tensor = tensors.emplace_back(fused);
    tensor.name.replace(tensor.name.find(kFused), kFused.size(), part);
    tensor.shape[0] = rows;
    tensor.bytes = fused.bytes.subspan(first * row_bytes, rows * row_bytes);
    first += rows;
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const std::string& file, const ModelConfig& config,
                          const std::vector<TensorView>& tensors,
                          const std::function<std::string(const std::string&)>& name_of) {
  std::unordered_map<std::string_view, const TensorView*> left;  // Not expected so far.
  for (const TensorView& tensor : tensors) left[tensor.name] = &tensor;
  for (const TensorSpec& expected : TensorsOf(config)) {
    const auto found = left.find(expected.name);
    const bool missing = found == left.end();
    if (missing || found->second->shape != expected.shape) {
      return Damaged(file, name_of(expected.name), ShapeText(expected.shape),
                     missing ? "none" : ShapeText(found->second->shape));
    }
    left.erase(found);
  }
  for (const TensorView& tensor : tensors) {
    if (!left.contains(tensor.name)) continue;
    return absl::UnimplementedError(
        absl::StrCat(file, ": tensor ", PrintableName(name_of(tensor.name)), ": expected none in ",
                     config.architecture, " with ", config.num_layers, " layers, got one"));
  }
  return absl::OkStatus();
}

}  // namespace paceline
