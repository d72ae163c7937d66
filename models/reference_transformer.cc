#include "models/reference_transformer.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/reference_weights.h"
#include "models/torch_call.h"
#include "models/torch_device.h"

// Shapes: W rows of a tile (real ones first, then padding), S attended slots (padded), H hidden, N
// heads, G key-value heads, D head size, V vocabulary.
namespace paceline {
namespace {

constexpr int32_t kPassWidth = 8;     // Rows of a tile: one decoded token, or a draft and its root.
constexpr int32_t kPromptWidth = 64;  // Rows of a tile of a prompt.
constexpr int64_t kKeyPadding = 64;   // Attended slots are padded to a multiple of it.

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, float epsilon) {
  return x * (x * x).mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_() * weight;
}

at::Tensor Linear(const at::Tensor& x, const MatrixWeights& weights) {
  const at::Tensor product = at::linear(x, weights.matrix);
  return weights.bias.defined() ? product + weights.bias : product;
}

// How the rows of a tile are rotated: x * cosines + partners(x) * sines.
struct Turn {
  at::Tensor cosines;  // [W, 1, D]
  at::Tensor sines;    // [W, 1, D], negative for a pair's first member
};

// Consecutive rows of one segment, padded to a fixed width so that no shape tells how many are
// real.
struct Tile {
  int32_t num_rows = 0;  // Real ones.
  int32_t width = 0;     // W
  at::Tensor tokens;     // [W] int64
  at::Tensor positions;  // [W] int64
  std::vector<Turn> turns;  // Of each rotary of the model.
  at::Tensor new_slots;  // [num_rows] int64: where the real rows' keys and values go
  at::Tensor key_slots;  // [S] int64: what is attended, the rows themselves included
  // By the layer's window: [N / G * W, S] 0 or -inf, the same for each head of a group.
  std::map<int32_t, at::Tensor> masks;
};

// Rows of a pass are written in their order.
struct LogitWriter {
  ForwardOutput logits;
  int64_t next_row = 0;
};

class ReferenceTransformer : public LanguageModel, private KvStorage {
 public:
  ReferenceTransformer(ModelConfig config, ReferenceWeights weights, at::Device device,
                       int64_t max_positions)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        device_(device),
        cache_(this, max_positions),
        keys_(config_.num_layers),
        values_(config_.num_layers) {
    BuildRotation();
  }

  absl::StatusOr<ForwardOutput> Forward(const ForwardBatch& batch) override;

  KvCache& cache() override { return cache_; }
  int32_t context_length() const override { return config_.context_length; }
  int32_t num_layers() const override { return config_.num_layers; }
  int64_t logit_width() const override { return config_.vocab_size; }
  PassWork work() const override;
  std::string Describe() const override {
    return absl::StrCat("reference engine, ", device_.str(), ", ", at::get_num_threads(),
                        " threads");
  }

 private:
  absl::Status RunSegment(const Segment& segment, int32_t num_layers, LogitWriter& output);
  void RunTile(const Tile& tile, int32_t num_layers, bool wants_all, bool wants_last,
               LogitWriter& output);

  Tile MakeTile(const Segment& segment, const std::vector<int64_t>& slots, int32_t base,
                int32_t first, int32_t width) const;
  at::Tensor MakeMask(const Segment& segment, int32_t base, int32_t first, int32_t num_rows,
                      int32_t width, int64_t num_keys, int32_t window) const;
  Turn MakeTurn(const Rotary& rotary, const at::Tensor& positions) const;
  at::Tensor Norm(const at::Tensor& x, const NormWeights& weights) const;
  at::Tensor FeedForward(const at::Tensor& x, const LayerWeights& weights) const;
  at::Tensor Layer(const at::Tensor& x, int32_t layer, const Tile& tile);
  at::Tensor Attention(const at::Tensor& x, int32_t layer, const Tile& tile);
  at::Tensor Rotate(const at::Tensor& x, const Turn& turn) const;
  void AddLogits(const at::Tensor& hidden, int64_t num_rows, LogitWriter& output) const;

  void BuildRotation();
  absl::Status Reserve(int64_t num_slots) override;
  void Copy(std::span<const SlotCopy> copies) override;

  at::Tensor Ids(std::vector<int64_t> ids) const {
    return at::from_blob(ids.data(), {static_cast<int64_t>(ids.size())}, at::kLong)
        .clone()
        .to(device_);
  }

  ModelConfig config_;
  ReferenceWeights weights_;
  at::Device device_;
  KvCache cache_;
  std::vector<at::Tensor> keys_;    // per layer [slots, G, D], stored rotated
  std::vector<at::Tensor> values_;  // per layer [slots, G, D]
  at::Tensor signs_;                // [D] -1 for a pair's first member, 1 for its second
  at::Tensor pairs_;                // [D] int64: the pair of each place
  at::Tensor partners_;             // [D] int64: the other member of each place's pair
};

// A pair (a, b) turns to (a cos - b sin, b cos + a sin): x * cosines + partners(x) * sines, where
// partners are neighbours or lie in the other half of the head.
void ReferenceTransformer::BuildRotation() {
  const int64_t dim = config_.head_dim;
  std::vector<int64_t> partners;
  std::vector<int64_t> pairs;
  std::vector<float> signs;
  for (int64_t i = 0; i < dim; ++i) {
    const bool first = config_.rope_interleaved ? i % 2 == 0 : i < dim / 2;
    const int64_t step = config_.rope_interleaved ? 1 : dim / 2;
    pairs.push_back(config_.rope_interleaved ? i / 2 : i % (dim / 2));
    partners.push_back(first ? i + step : i - step);
    signs.push_back(first ? -1.0f : 1.0f);
  }
  signs_ = at::from_blob(signs.data(), {dim}, at::kFloat).clone().to(device_);
  pairs_ = Ids(std::move(pairs));
  partners_ = Ids(std::move(partners));
}

Turn ReferenceTransformer::MakeTurn(const Rotary& rotary, const at::Tensor& positions) const {
  std::vector<double> frequencies = rotary.frequencies;
  const at::Tensor turns =
      at::from_blob(frequencies.data(), {1, std::ssize(frequencies)}, at::kDouble)
          .to(device_)
          .index_select(1, pairs_);
  const at::Tensor angles = positions.to(at::kDouble).unsqueeze(1) * turns;
  return {angles.cos().to(at::kFloat).unsqueeze(1),
          (angles.sin().to(at::kFloat) * signs_).unsqueeze(1)};
}

absl::StatusOr<ForwardOutput> ReferenceTransformer::Forward(const ForwardBatch& batch) {
  PACELINE_RETURN_IF_ERROR(CheckBatch(batch, config_, cache_));
  const int32_t num_layers = batch.num_layers > 0 ? batch.num_layers : config_.num_layers;
  std::vector<int32_t> lengths;
  for (const Segment& segment : batch.segments) lengths.push_back(cache_.Length(segment.sequence));
  LogitWriter output{ForwardOutput(batch.NumWantedRows(), config_.vocab_size)};
  const absl::Status status = CallTorch([&]() -> absl::Status {
    for (const Segment& segment : batch.segments) {
      PACELINE_RETURN_IF_ERROR(RunSegment(segment, num_layers, output));
    }
    return absl::OkStatus();
  });
  if (status.ok()) return std::move(output.logits);
  for (size_t i = 0; i < lengths.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(cache_.Truncate(batch.segments[i].sequence, lengths[i]));
  }
  return status;
}

// Every matrix in float32.
PassWork ReferenceTransformer::work() const {
  int64_t elements = weights_.head.numel();
  for (const LayerWeights& layer : weights_.layers) {
    elements += layer.query_key_value.matrix.numel() + layer.attention_out.matrix.numel() +
                layer.gate_up.matrix.numel() + layer.down.matrix.numel();
  }
  return {4 * elements, elements};
}

absl::Status ReferenceTransformer::RunSegment(const Segment& segment, int32_t num_layers,
                                              LogitWriter& output) {
  const auto count = static_cast<int32_t>(segment.tokens.size());
  const int32_t base = cache_.Length(segment.sequence);
  PACELINE_RETURN_IF_ERROR(cache_.Append(segment.sequence, count).status());
  const std::vector<int64_t> slots = cache_.Slots(segment.sequence);
  const bool prompt = count > kPassWidth && segment.parents.empty();
  const int32_t width = prompt ? kPromptWidth : kPassWidth;
  for (int32_t first = 0; first < count; first += width) {
    const Tile tile = MakeTile(segment, slots, base, first, width);
    const bool last = first + width >= count;
    RunTile(tile, num_layers, segment.wish == RowWish::kAll, last && segment.Wants(count - 1), output);
  }
  return absl::OkStatus();
}

Tile ReferenceTransformer::MakeTile(const Segment& segment, const std::vector<int64_t>& slots,
                                    int32_t base, int32_t first, int32_t width) const {
  Tile tile;
  tile.width = width;
  tile.num_rows = std::min(width, static_cast<int32_t>(segment.tokens.size()) - first);
  std::vector<int64_t> tokens(width, 0);
  std::vector<int64_t> positions(width, 0);
  for (int32_t i = 0; i < tile.num_rows; ++i) {
    tokens[i] = segment.tokens[first + i];
    positions[i] = base + segment.Depth(first + i) - 1;
  }
  const int64_t num_keys = base + first + tile.num_rows;
  std::vector<int64_t> key_slots(slots.begin(), slots.begin() + num_keys);
  key_slots.resize(RoundUp(num_keys, kKeyPadding), slots[0]);
  tile.tokens = Ids(std::move(tokens));
  tile.positions = Ids(std::move(positions));
  for (const Rotary& rotary : config_.rotaries) {
    tile.turns.push_back(MakeTurn(rotary, tile.positions));
  }
  tile.new_slots = Ids({slots.begin() + base + first, slots.begin() + num_keys});
  tile.key_slots = Ids(std::move(key_slots));
  for (const int32_t window : config_.Windows()) {
    tile.masks[window] = MakeMask(segment, base, first, tile.num_rows, width,
                                  RoundUp(num_keys, kKeyPadding), window);
  }
  return tile;
}

// A row sees the cache, its ancestors among the segment's rows, and itself, of these the positions
// within its window. Padding rows see one slot, so that their softmax is a number.
at::Tensor ReferenceTransformer::MakeMask(const Segment& segment, int32_t base, int32_t first,
                                          int32_t num_rows, int32_t width, int64_t num_keys,
                                          int32_t window) const {
  std::vector<float> mask(width * num_keys, -std::numeric_limits<float>::infinity());
  for (int32_t i = 0; i < width; ++i) {
    float* row = mask.data() + i * num_keys;
    if (i >= num_rows) {
      row[0] = 0.0f;
      continue;
    }
    const int32_t position = base + segment.Depth(first + i) - 1;
    const int32_t oldest = window > 0 ? std::max(0, position + 1 - window) : 0;
    if (oldest < base) std::fill(row + oldest, row + base, 0.0f);
    int32_t at = position;
    for (int32_t seen = first + i; seen >= 0 && at >= oldest; seen = segment.Parent(seen), --at) {
      row[base + seen] = 0.0f;
    }
  }
  return at::from_blob(mask.data(), {width, num_keys}, at::kFloat)
      .repeat({config_.num_heads / config_.num_kv_heads, 1})
      .to(device_);
}

void ReferenceTransformer::RunTile(const Tile& tile, int32_t num_layers, bool wants_all,
                                   bool wants_last, LogitWriter& output) {
  at::Tensor x = weights_.embedding.index_select(0, tile.tokens);
  if (config_.embedding_scale != 1.0f) x.mul_(config_.embedding_scale);
  if (config_.learned_positions) x.add_(weights_.positions.index_select(0, tile.positions));
  for (int32_t layer = 0; layer < num_layers; ++layer) x = Layer(x, layer, tile);
  if (wants_all) {
    for (int32_t row = 0; row < tile.num_rows; row += kPassWidth) {
      const int32_t count = std::min(kPassWidth, tile.num_rows - row);
      AddLogits(x.narrow(0, row, kPassWidth), count, output);
    }
  } else if (wants_last) {
    // The wanted row goes first into a tile of the usual width.
    const int64_t last = tile.num_rows - 1;
    AddLogits(x.narrow(0, last, 1).expand({kPassWidth, config_.hidden_size}), 1, output);
  }
}

at::Tensor ReferenceTransformer::Norm(const at::Tensor& x, const NormWeights& weights) const {
  if (config_.norm == NormKind::kRms) return RmsNorm(x, weights.weight, config_.norm_epsilon);
  const at::Tensor centred = x - x.mean(-1, /*keepdim=*/true);
  return RmsNorm(centred, weights.weight, config_.norm_epsilon).add_(weights.bias);
}

at::Tensor ReferenceTransformer::Layer(const at::Tensor& x, int32_t layer, const Tile& tile) {
  const LayerWeights& weights = weights_.layers[layer];
  at::Tensor attention = Attention(Norm(x, weights.attention_norm), layer, tile);
  if (config_.post_norms) attention = Norm(attention, weights.attention_post_norm);
  const at::Tensor attended = x + attention;
  at::Tensor fed = FeedForward(Norm(attended, weights.feed_norm), weights);
  if (config_.post_norms) fed = Norm(fed, weights.feed_post_norm);
  return attended + fed;
}

at::Tensor ReferenceTransformer::FeedForward(const at::Tensor& x,
                                             const LayerWeights& weights) const {
  const int64_t inner = config_.feed_forward_size;
  const at::Tensor gate_up = Linear(x, weights.gate_up);
  const at::Tensor first = gate_up.narrow(1, 0, inner);
  at::Tensor inside =
      config_.activation == Activation::kSilu ? at::silu(first) : at::gelu(first, "tanh");
  if (config_.gated) inside.mul_(gate_up.narrow(1, inner, inner));
  return Linear(inside, weights.down);
}

// x [W, heads, D], each head turned by its row's position.
at::Tensor ReferenceTransformer::Rotate(const at::Tensor& x, const Turn& turn) const {
  return (x * turn.cosines).add_(x.index_select(-1, partners_).mul_(turn.sines));
}

at::Tensor ReferenceTransformer::Attention(const at::Tensor& x, int32_t layer, const Tile& tile) {
  const LayerWeights& weights = weights_.layers[layer];
  const int64_t heads = config_.num_heads;
  const int64_t groups = config_.num_kv_heads;
  const int64_t dim = config_.head_dim;
  const int64_t width = tile.width;
  const at::Tensor projected =
      Linear(x, weights.query_key_value).view({width, heads + 2 * groups, dim});
  at::Tensor rotated = projected.narrow(1, 0, heads + groups);
  if (config_.query_key_norm) {
    rotated = at::cat({RmsNorm(rotated.narrow(1, 0, heads), weights.query_norm.weight,
                               config_.norm_epsilon),
                       RmsNorm(rotated.narrow(1, heads, groups), weights.key_norm.weight,
                               config_.norm_epsilon)},
                      1);
  }
  const LayerConfig& settings = config_.layers[layer];
  if (!tile.turns.empty()) rotated = Rotate(rotated, tile.turns[settings.rotary]);

  keys_[layer].index_copy_(0, tile.new_slots,
                           rotated.narrow(1, heads, groups).narrow(0, 0, tile.num_rows));
  values_[layer].index_copy_(
      0, tile.new_slots, projected.narrow(1, heads + groups, groups).narrow(0, 0, tile.num_rows));
  const at::Tensor keys = keys_[layer].index_select(0, tile.key_slots);      // [S, G, D]
  const at::Tensor values = values_[layer].index_select(0, tile.key_slots);  // [S, G, D]

  // Query heads of a group share its keys: [G, heads / G * W, D].
  const at::Tensor queries = rotated.narrow(1, 0, heads)
                                 .view({width, groups, heads / groups, dim})
                                 .permute({1, 2, 0, 3})
                                 .reshape({groups, heads / groups * width, dim});
  const at::Tensor scores = at::baddbmm(tile.masks.at(settings.window), queries,
                                        keys.permute({1, 2, 0}), /*beta=*/1,
                                        /*alpha=*/static_cast<double>(config_.attention_scale));
  const at::Tensor mixed = at::bmm(at::softmax(scores, -1), values.permute({1, 0, 2}))
                               .view({groups, heads / groups, width, dim})
                               .permute({2, 0, 1, 3})
                               .reshape({width, heads * dim});
  return Linear(mixed, weights.attention_out);
}

// Final norm and head over one tile of the usual width; the first `num_rows` rows are wanted.
void ReferenceTransformer::AddLogits(const at::Tensor& hidden, int64_t num_rows,
                                     LogitWriter& output) const {
  const at::Tensor normed = Norm(hidden, weights_.output_norm);
  const at::Tensor logits =
      at::linear(normed, weights_.head).narrow(0, 0, num_rows).to(at::kCPU).contiguous();
  std::copy_n(logits.data_ptr<float>(), logits.numel(), output.logits.MutableRow(output.next_row));
  output.next_row += num_rows;
}

absl::Status ReferenceTransformer::Reserve(int64_t num_slots) {
  return CallTorch([&]() -> absl::Status {
    for (std::vector<at::Tensor>* storage : {&keys_, &values_}) {
      for (at::Tensor& tensor : *storage) {
        at::Tensor grown = at::zeros({num_slots, config_.num_kv_heads, config_.head_dim},
                                     at::TensorOptions().dtype(at::kFloat).device(device_));
        if (tensor.defined()) grown.narrow(0, 0, tensor.size(0)).copy_(tensor);
        tensor = grown;
      }
    }
    return absl::OkStatus();
  });
}

void ReferenceTransformer::Copy(std::span<const SlotCopy> copies) {
  const c10::InferenceMode guard;
  std::vector<int64_t> from;
  std::vector<int64_t> to;
  for (const SlotCopy& copy : copies) {
    from.push_back(copy.from);
    to.push_back(copy.to);
  }
  // All sources are read before any destination is written.
  const at::Tensor sources = Ids(std::move(from));
  const at::Tensor destinations = Ids(std::move(to));
  for (std::vector<at::Tensor>* storage : {&keys_, &values_}) {
    for (at::Tensor& tensor : *storage) {
      tensor.index_copy_(0, destinations, tensor.index_select(0, sources));
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadReferenceModel(const WeightSource& weights,
                                                                  const ModelOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(ModelConfig config, ConfigFor(weights.config(), options));
  return CallTorch([&]() -> absl::StatusOr<std::unique_ptr<LanguageModel>> {
    if (options.num_threads > 0) at::set_num_threads(options.num_threads);
    PACELINE_ASSIGN_OR_RETURN(const at::Device device, OpenDevice(options.device));
    PACELINE_ASSIGN_OR_RETURN(ReferenceWeights tensors, LoadReferenceWeights(weights, device));
    const int64_t positions = options.CachePositions(config);
    return std::make_unique<ReferenceTransformer>(std::move(config), std::move(tensors), device,
                                                  positions);
  });
}

}  // namespace paceline
