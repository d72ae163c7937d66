#include "models/reference_weights.h"

#include <ATen/ops/empty.h>

#include <initializer_list>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

class Loader {
 public:
  Loader(const WeightSource& source, const at::Device& device) : source_(source), device_(device) {}

  // Tensors of one row length, one below the other; a vector if `name` has one dimension.
  absl::StatusOr<at::Tensor> Load(std::initializer_list<std::string> names) const {
    std::vector<const TensorView*> views;
    int64_t rows = 0;
    for (const std::string& name : names) {
      PACELINE_ASSIGN_OR_RETURN(const TensorView* view, source_.Find(name));
      rows += view->num_elements() / view->shape.back();
      views.push_back(view);
    }
    const int64_t columns = views.front()->shape.back();
    at::Tensor tensor = at::empty({rows, columns}, at::kFloat);
    float* next = tensor.data_ptr<float>();
    for (const TensorView* view : views) {
      const auto count = static_cast<size_t>(view->num_elements());
      PACELINE_RETURN_IF_ERROR(Dequantise(view->type, view->bytes, std::span(next, count)));
      next += count;
    }
    if (views.front()->shape.size() == 1) tensor = tensor.view({columns});
    return tensor.to(device_);
  }

  absl::StatusOr<LayerWeights> LoadLayer(int32_t index) const {
    const auto name = [&](const char* part) {
      return absl::StrCat("blk.", index, ".", part, ".weight");
    };
    LayerWeights layer;
    PACELINE_ASSIGN_OR_RETURN(layer.attention_norm, Load({name("attn_norm")}));
    PACELINE_ASSIGN_OR_RETURN(layer.query_key_value,
                              Load({name("attn_q"), name("attn_k"), name("attn_v")}));
    PACELINE_ASSIGN_OR_RETURN(layer.attention_out, Load({name("attn_output")}));
    PACELINE_ASSIGN_OR_RETURN(layer.feed_norm, Load({name("ffn_norm")}));
    PACELINE_ASSIGN_OR_RETURN(layer.gate_up, Load({name("ffn_gate"), name("ffn_up")}));
    PACELINE_ASSIGN_OR_RETURN(layer.down, Load({name("ffn_down")}));
    return layer;
  }

 private:
  const WeightSource& source_;
  const at::Device& device_;
};

}  // namespace

absl::StatusOr<ReferenceWeights> LoadReferenceWeights(const WeightSource& source,
                                                      const at::Device& device) {
  const Loader loader(source, device);
  ReferenceWeights weights;
  PACELINE_ASSIGN_OR_RETURN(weights.embedding, loader.Load({"token_embd.weight"}));
  for (int32_t layer = 0; layer < source.config().num_layers; ++layer) {
    PACELINE_ASSIGN_OR_RETURN(LayerWeights layer_weights, loader.LoadLayer(layer));
    weights.layers.push_back(std::move(layer_weights));
  }
  PACELINE_ASSIGN_OR_RETURN(weights.output_norm, loader.Load({"output_norm.weight"}));
  weights.head = weights.embedding;
  if (source.Find("output.weight").ok()) {
    PACELINE_ASSIGN_OR_RETURN(weights.head, loader.Load({"output.weight"}));
  }
  return weights;
}

}  // namespace paceline
