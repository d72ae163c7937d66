#include "models/reference_weights.h"

#include <ATen/ops/empty.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/family.h"

namespace paceline {
namespace {

class Loader {
 public:
  Loader(const WeightSource& source, const at::Device& device) : source_(source), device_(device) {}

  // Matrices of one row length, one below the other; or vectors, one behind the other.
  absl::StatusOr<at::Tensor> Load(const std::vector<std::string>& names) const {
    std::vector<const TensorView*> views;
    int64_t elements = 0;
    for (const std::string& name : names) {
      PACELINE_ASSIGN_OR_RETURN(const TensorView* view, source_.Find(name));
      elements += view->num_elements();
      views.push_back(view);
    }
    at::Tensor tensor = at::empty({elements}, at::kFloat);
    float* next = tensor.data_ptr<float>();
    for (const TensorView* view : views) {
      const auto count = static_cast<size_t>(view->num_elements());
      PACELINE_RETURN_IF_ERROR(Dequantise(view->type, view->bytes, std::span(next, count)));
      next += count;
    }
    const std::vector<int64_t>& shape = views.front()->shape;
    return (shape.size() == 1 ? tensor : tensor.view({-1, shape.back()})).to(device_);
  }

  absl::StatusOr<NormWeights> LoadNorm(const std::string& name, NormKind kind) const {
    NormWeights norm;
    PACELINE_ASSIGN_OR_RETURN(norm.weight, Load({name + ".weight"}));
    if (kind == NormKind::kLayer) {
      PACELINE_ASSIGN_OR_RETURN(norm.bias, Load({name + ".bias"}));
    }
    return norm;
  }

  // Matrices of a layer, one below the other.
  absl::StatusOr<MatrixWeights> LoadMatrix(int32_t layer, const std::vector<std::string>& parts,
                                           bool has_bias) const {
    const auto names = [&](std::string_view ending) {
      std::vector<std::string> list;
      for (const std::string& part : parts) list.push_back(LayerTensor(layer, part, ending));
      return list;
    };
    MatrixWeights weights;
    PACELINE_ASSIGN_OR_RETURN(weights.matrix, Load(names("weight")));
    if (has_bias) {
      PACELINE_ASSIGN_OR_RETURN(weights.bias, Load(names("bias")));
    }
    return weights;
  }

  absl::StatusOr<LayerWeights> LoadLayer(int32_t index) const {
    const ModelConfig& config = source_.config();
    const auto norm = [&](const char* part, NormKind kind) {
      return LoadNorm(absl::StrCat("blk.", index, ".", part), kind);
    };
    LayerWeights layer;
    PACELINE_ASSIGN_OR_RETURN(layer.attention_norm, norm("attn_norm", config.norm));
    PACELINE_ASSIGN_OR_RETURN(
        layer.query_key_value,
        LoadMatrix(index, {"attn_q", "attn_k", "attn_v"}, config.attention_bias));
    PACELINE_ASSIGN_OR_RETURN(layer.attention_out,
                              LoadMatrix(index, {"attn_output"}, config.output_bias));
    if (config.query_key_norm) {
      PACELINE_ASSIGN_OR_RETURN(layer.query_norm, norm("attn_q_norm", NormKind::kRms));
      PACELINE_ASSIGN_OR_RETURN(layer.key_norm, norm("attn_k_norm", NormKind::kRms));
    }
    PACELINE_ASSIGN_OR_RETURN(layer.feed_norm, norm("ffn_norm", config.norm));
    const std::vector<std::string> inner = config.gated ? std::vector<std::string>{"ffn_gate", "ffn_up"}
                                                        : std::vector<std::string>{"ffn_up"};
    PACELINE_ASSIGN_OR_RETURN(layer.gate_up, LoadMatrix(index, inner, config.feed_forward_bias));
    PACELINE_ASSIGN_OR_RETURN(layer.down, LoadMatrix(index, {"ffn_down"}, config.feed_forward_bias));
    if (config.post_norms) {
      PACELINE_ASSIGN_OR_RETURN(layer.attention_post_norm, norm("post_attention_norm", config.norm));
      PACELINE_ASSIGN_OR_RETURN(layer.feed_post_norm, norm("post_ffw_norm", config.norm));
    }
    return layer;
  }

 private:
  const WeightSource& source_;
  const at::Device& device_;
};

}  // namespace

absl::StatusOr<ReferenceWeights> LoadReferenceWeights(const WeightSource& source,
                                                      const at::Device& device) {
  const ModelConfig& config = source.config();
  const Loader loader(source, device);
  ReferenceWeights weights;
  PACELINE_ASSIGN_OR_RETURN(weights.embedding, loader.Load({"token_embd.weight"}));
  if (config.learned_positions) {
    PACELINE_ASSIGN_OR_RETURN(weights.positions, loader.Load({"position_embd.weight"}));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    PACELINE_ASSIGN_OR_RETURN(LayerWeights layer_weights, loader.LoadLayer(layer));
    weights.layers.push_back(std::move(layer_weights));
  }
  PACELINE_ASSIGN_OR_RETURN(weights.output_norm, loader.LoadNorm("output_norm", config.norm));
  weights.head = weights.embedding;
  if (!config.tied_head) {
    PACELINE_ASSIGN_OR_RETURN(weights.head, loader.Load({"output.weight"}));
  }
  return weights;
}

}  // namespace paceline
