#include "models/cpu/cpu_weights.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/family.h"

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

absl::StatusOr<NormWeights> Norm(const WeightSource& source, const std::string& name,
                                 NormKind kind) {
  NormWeights norm;
  PACELINE_ASSIGN_OR_RETURN(norm.weight, Vector(source, name + ".weight"));
  if (kind == NormKind::kLayer) {
    PACELINE_ASSIGN_OR_RETURN(norm.bias, Vector(source, name + ".bias"));
  }
  return norm;
}

absl::StatusOr<LayerWeights> Layer(const WeightSource& source, int32_t index) {
  const ModelConfig& config = source.config();
  const auto norm = [&](const char* part, NormKind kind) {
    return Norm(source, absl::StrCat("blk.", index, ".", part), kind);
  };
  const auto projection = [&](const char* part, bool has_bias) -> absl::StatusOr<Projection> {
    Projection result;
    PACELINE_ASSIGN_OR_RETURN(result.matrix, Matrix(source, LayerTensor(index, part)));
    if (has_bias) {
      PACELINE_ASSIGN_OR_RETURN(result.bias, Vector(source, LayerTensor(index, part, "bias")));
    }
    return result;
  };
  LayerWeights layer;
  PACELINE_ASSIGN_OR_RETURN(layer.attention_norm, norm("attn_norm", config.norm));
  PACELINE_ASSIGN_OR_RETURN(layer.query, projection("attn_q", config.attention_bias));
  PACELINE_ASSIGN_OR_RETURN(layer.key, projection("attn_k", config.attention_bias));
  PACELINE_ASSIGN_OR_RETURN(layer.value, projection("attn_v", config.attention_bias));
  if (config.query_key_norm) {
    PACELINE_ASSIGN_OR_RETURN(layer.query_norm, norm("attn_q_norm", NormKind::kRms));
    PACELINE_ASSIGN_OR_RETURN(layer.key_norm, norm("attn_k_norm", NormKind::kRms));
  }
  PACELINE_ASSIGN_OR_RETURN(layer.attention_out, projection("attn_output", config.output_bias));
  PACELINE_ASSIGN_OR_RETURN(layer.feed_norm, norm("ffn_norm", config.norm));
  if (config.gated) {
    PACELINE_ASSIGN_OR_RETURN(layer.gate, projection("ffn_gate", config.feed_forward_bias));
  }
  PACELINE_ASSIGN_OR_RETURN(layer.up, projection("ffn_up", config.feed_forward_bias));
  PACELINE_ASSIGN_OR_RETURN(layer.down, projection("ffn_down", config.feed_forward_bias));
  if (config.post_norms) {
    PACELINE_ASSIGN_OR_RETURN(layer.attention_post_norm, norm("post_attention_norm", config.norm));
    PACELINE_ASSIGN_OR_RETURN(layer.feed_post_norm, norm("post_ffw_norm", config.norm));
  }
  return layer;
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const WeightSource& source) {
  const ModelConfig& config = source.config();
  Weights weights;
  PACELINE_ASSIGN_OR_RETURN(PackedMatrix embedding, Matrix(source, "token_embd.weight"));
  weights.embedding = std::make_shared<const PackedMatrix>(std::move(embedding));
  if (config.learned_positions) {
    PACELINE_ASSIGN_OR_RETURN(weights.positions, Vector(source, "position_embd.weight"));
  }
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    PACELINE_ASSIGN_OR_RETURN(LayerWeights layer_weights, Layer(source, layer));
    weights.layers.push_back(std::move(layer_weights));
  }
  PACELINE_ASSIGN_OR_RETURN(weights.output_norm, Norm(source, "output_norm", config.norm));
  weights.head = weights.embedding;
  if (!config.tied_head) {
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
    for (const Projection* projection : {&layer.query, &layer.key, &layer.value,
                                         &layer.attention_out, &layer.gate, &layer.up, &layer.down}) {
      add(projection->matrix);
    }
  }
  add(*head);
  return work;
}

}  // namespace paceline::cpu
