#include "models/cpu/cpu_weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline::cpu {
namespace {

absl::StatusOr<PackedMatrix> Matrix(const WeightSource& source, const std::string& name) {
  PACELINE_ASSIGN_OR_RETURN(const TensorView* tensor, source.Find(name));
  return PackedMatrix::Pack(*tensor);
}

absl::StatusOr<std::vector<float>> Vector(const WeightSource& source, const std::string& name) {
  PACELINE_ASSIGN_OR_RETURN(const TensorView* tensor, source.Find(name));
  std::vector<float> values(tensor->num_elements());
  PACELINE_RETURN_IF_ERROR(Dequantise(tensor->type, tensor->bytes, std::span<float>(values)));
  return values;
}

absl::StatusOr<LayerWeights> Layer(const WeightSource& source, int32_t index) {
  const auto name = [&](const char* part) {
    return absl::StrCat("blk.", index, ".", part, ".weight");
  };
  LayerWeights layer;
  PACELINE_ASSIGN_OR_RETURN(layer.attention_norm, Vector(source, name("attn_norm")));
  PACELINE_ASSIGN_OR_RETURN(layer.query, Matrix(source, name("attn_q")));
  PACELINE_ASSIGN_OR_RETURN(layer.key, Matrix(source, name("attn_k")));
  PACELINE_ASSIGN_OR_RETURN(layer.value, Matrix(source, name("attn_v")));
  PACELINE_ASSIGN_OR_RETURN(layer.attention_out, Matrix(source, name("attn_output")));
  PACELINE_ASSIGN_OR_RETURN(layer.feed_norm, Vector(source, name("ffn_norm")));
  PACELINE_ASSIGN_OR_RETURN(layer.gate, Matrix(source, name("ffn_gate")));
  PACELINE_ASSIGN_OR_RETURN(layer.up, Matrix(source, name("ffn_up")));
  PACELINE_ASSIGN_OR_RETURN(layer.down, Matrix(source, name("ffn_down")));
  return layer;
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const WeightSource& source) {
  Weights weights;
  PACELINE_ASSIGN_OR_RETURN(PackedMatrix embedding, Matrix(source, "token_embd.weight"));
  weights.embedding = std::make_shared<const PackedMatrix>(std::move(embedding));
  for (int32_t layer = 0; layer < source.config().num_layers; ++layer) {
    PACELINE_ASSIGN_OR_RETURN(LayerWeights layer_weights, Layer(source, layer));
    weights.layers.push_back(std::move(layer_weights));
  }
  PACELINE_ASSIGN_OR_RETURN(weights.output_norm, Vector(source, "output_norm.weight"));
  weights.head = weights.embedding;
  if (source.Find("output.weight").ok()) {
    PACELINE_ASSIGN_OR_RETURN(PackedMatrix head, Matrix(source, "output.weight"));
    weights.head = std::make_shared<const PackedMatrix>(std::move(head));
  }
  return weights;
}

PassWork Weights::work() const {
  PassWork work;
  const auto add = [&](const PackedMatrix& matrix) {
    work.weight_bytes += matrix.bytes();
    work.multiplications += matrix.rows() * matrix.columns();
  };
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.attention_out,
                                       &layer.gate, &layer.up, &layer.down}) {
      add(*matrix);
    }
  }
  add(*head);
  return work;
}

}  // namespace paceline::cpu
