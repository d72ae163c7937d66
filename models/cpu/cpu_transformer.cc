#include "models/cpu/cpu_transformer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "models/cpu/cpu_weights.h"
#include "models/cpu/isa.h"
#include "models/cpu/machine.h"
#include "models/cpu/page_store.h"

// Shapes: M rows of a pass, H hidden, N query heads in G groups, D head size, F feed-forward, V
// vocabulary, P positions of a page.
namespace paceline {
namespace cpu {
namespace {

constexpr int64_t kPage = KvCache::kPageSize;
constexpr int64_t kChunkPages = kAttentionChunk / kPage;
constexpr int64_t kMaxRows = 128;        // Rows of a pass; a prompt is cut into such.
constexpr int64_t kMaxPartials = 2048;   // (row, chunk) pairs of a pass.

// A segment of the batch while it runs: where each position of its sequence lies.
struct SegmentPlan {
  const Segment* segment;
  int32_t base = 0;             // Positions that were cached before.
  bool chain = true;            // Each row continues the one before.
  std::vector<int64_t> slots;   // Of the cached positions, then of the rows.
};

struct Row {
  const SegmentPlan* plan;
  int32_t index = 0;      // Among the segment's rows.
  int32_t position = 0;
  int64_t output = -1;    // Its row of the logits; -1 if none is wanted.
  std::vector<int64_t> tail;  // In a tree: slots of its ancestors among the rows, and its own.

  int32_t token() const { return plan->segment->tokens[index]; }
  int64_t slot() const { return plan->slots[plan->base + index]; }
  int64_t num_chunks() const { return position / kAttentionChunk + 1; }
  // What a layer with this window leaves to be seen.
  int64_t FirstSeen(int32_t window) const {
    return window > 0 ? std::max(0, position + 1 - window) : 0;
  }
  int64_t FirstChunk(int32_t window) const { return FirstSeen(window) / kAttentionChunk; }
  bool SeesChunk(int64_t chunk, int32_t window) const {
    return chunk >= FirstChunk(window) && chunk < num_chunks();
  }
  int64_t CountIn(int64_t chunk) const {
    return std::min(kAttentionChunk, position + 1 - chunk * kAttentionChunk);
  }
  // Whether the first `count` positions lie in the cache's pages in their order.
  bool InOrder(int64_t count) const { return plan->chain || count <= plan->base; }
  int64_t SlotOf(int64_t at) const {
    if (plan->chain || at < plan->base) return plan->slots[at];
    return tail[at - plan->base];
  }
};

// Rows of activations and their int8 form.
struct ActivationBuffer {
  void Resize(int64_t num_rows, int64_t num_columns) {
    columns = num_columns;
    values.resize(num_rows * columns);
    quants.resize(num_rows * columns);
    scales.resize(num_rows * (columns / kBlock));
    sums.resize(num_rows * (columns / kBlock) * 3);
  }
  float* Row(int64_t row) { return values.data() + row * columns; }
  Activations View() const {
    return {values.data(), quants.data(), scales.data(), sums.data(), columns};
  }
  // Quantises columns [first, last) of a row, whole blocks.
  void Quantise(const Kernels& kernels, int64_t row, int64_t first, int64_t last) {
    if (columns % kBlock != 0) return;  // Only float weights have such inputs.
    const int64_t block = (row * columns + first) / kBlock;
    kernels.quantise(Row(row) + first, last - first, quants.data() + row * columns + first,
                     scales.data() + block, sums.data() + 3 * block);
  }

  int64_t columns = 0;
  std::vector<float> values;
  std::vector<int8_t> quants;
  std::vector<float> scales;
  std::vector<float> sums;
};

// One piece of attention: a chunk of positions for a group of heads of rows that follow each other
// and find these positions at the same places.
struct AttentionUnit {
  int32_t row;
  int32_t num_rows;
  int32_t group;
  int32_t chunk;
};

// What the threads of a pass share. Sized for the largest pass so far.
struct Workspace {
  std::vector<Row> rows;
  std::vector<std::vector<AttentionUnit>> units;  // [kinds of windows]
  std::vector<int64_t> first_partial;  // [M]: of (row, chunk) pairs
  std::vector<std::atomic<int32_t>> chunks_left;  // [M, G] to attend to in this layer
  std::vector<std::atomic<int32_t>> units_taken;  // [layers]
  std::vector<std::vector<float>> turns;  // [rotaries][M, 2, D / 2]: cosines, sines
  std::vector<float> hidden;           // [M, H] the residual stream
  ActivationBuffer normed;             // [M, H]
  std::vector<float> projected;        // [M, (N + 2 G) D] queries, keys, values
  std::vector<float> largest;          // [partials, N]
  std::vector<float> mass;             // [partials, N]
  std::vector<float> weighted;         // [partials, N, D]
  ActivationBuffer attended;           // [M, N D]
  std::vector<float> gate;             // [M, F]
  std::vector<float> up;               // [M, F]
  ActivationBuffer inside;             // [M, F]
  std::vector<float> delta;            // [M, H] what a projection adds to the residual stream
  ActivationBuffer wanted;             // [wanted rows, H]
  std::vector<int64_t> wanted_outputs; // [wanted rows] their rows of the output
};

// Memory for logits, used again once nobody reads them: fresh pages cost more than what is written
// to them.
class LogitBuffers {
 public:
  ForwardOutput Rows(int64_t num_rows, int64_t width) {
    const int64_t size = num_rows * width;
    if (size > kLargestKept) return {num_rows, width};
    for (Buffer& buffer : buffers_) {
      if (buffer.logits.use_count() > 1) continue;
      if (buffer.size < size) buffer = {std::make_shared_for_overwrite<float[]>(size), size};
      return {buffer.logits, num_rows, width};
    }
    return {num_rows, width};
  }

 private:
  static constexpr int64_t kLargestKept = int64_t{1} << 21;  // 8 MB.
  struct Buffer {
    std::shared_ptr<float[]> logits;
    int64_t size = 0;
  };
  Buffer buffers_[2];  // The pass before may still be read.
};

// What a thread has for itself.
struct ThreadScratch {
  std::vector<float> queries;     // [D, kHeadsTogether]
  std::vector<float> scores;      // [kHeadsTogether, kAttentionChunk]
  std::vector<uint16_t> keys;     // [kChunkPages, D, P]
  std::vector<uint16_t> values;   // [kChunkPages, P, D]
  std::vector<AttentionHead> heads;
  std::vector<uint16_t> halves;   // [2, D]
  std::vector<const float*> weighted;  // [chunks]
  std::vector<float> largest;          // [chunks]
  std::vector<float> mass;             // [chunks]
  std::vector<float> logits;           // [wanted rows, a few tiles]
  std::vector<BestLogit> best;         // [wanted rows] in the thread's part of the head
};

class CpuTransformer : public LanguageModel {
 public:
  CpuTransformer(ModelConfig config, Weights weights, const Kernels& kernels, int32_t num_threads,
                 int64_t max_positions)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        kernels_(kernels),
        store_(config_.num_layers, config_.num_kv_heads, config_.head_dim),
        cache_(&store_, max_positions),
        pool_(num_threads),
        scratch_(num_threads),
        windows_(config_.Windows()) {
    work_.turns.resize(config_.rotaries.size());
    for (ThreadScratch& scratch : scratch_) SizeScratch(scratch);
  }

  absl::StatusOr<ForwardOutput> Forward(const ForwardBatch& batch) override;

  KvCache& cache() override { return cache_; }
  int32_t context_length() const override { return config_.context_length; }
  int32_t num_layers() const override { return config_.num_layers; }
  int64_t logit_width() const override { return config_.vocab_size; }
  PassWork work() const override { return weights_.work(); }
  std::string Describe() const override {
    return absl::StrCat("fast engine, ", kernels_.name, ", ", pool_.num_threads(), " threads");
  }

 private:
  int64_t query_size() const { return int64_t{config_.num_heads} * config_.head_dim; }
  int64_t key_size() const { return int64_t{config_.num_kv_heads} * config_.head_dim; }
  int64_t projected_size() const { return query_size() + 2 * key_size(); }
  // Whether the heads of a group are whole blocks of the int8 form.
  bool GroupsFillBlocks() const {
    return heads_in_group() * config_.head_dim % kBlock == 0;
  }
  int64_t heads_in_group() const { return config_.num_heads / config_.num_kv_heads; }
  int64_t num_rows() const { return static_cast<int64_t>(work_.rows.size()); }

  void SizeScratch(ThreadScratch& scratch) const;
  absl::Status Run(const ForwardBatch& batch, ForwardOutput& output);
  void RunPass(std::vector<Row> rows, const ForwardBatch& batch, ForwardOutput& output);
  void SizeWorkspace(int32_t num_layers);
  void PlanAttention(int32_t num_layers);
  std::vector<AttentionUnit> PlanUnits(int32_t window) const;
  // Chunks that a row attends to in a layer.
  int32_t ChunksIn(const Row& row, int32_t layer) const {
    return static_cast<int32_t>(row.num_chunks() - row.FirstChunk(config_.layers[layer].window));
  }

  // The regions of a pass, each run by every thread on its part, a barrier between them.
  void Embed(int32_t thread);
  void Norm(int32_t thread, const NormWeights& weights);
  void NormRow(const float* x, const NormWeights& weights, float* y) const;
  void Project(int32_t thread, int32_t layer);
  void Attend(int32_t layer, ThreadScratch& scratch);
  void Combine(int64_t row, int64_t group, int32_t layer, ThreadScratch& scratch);
  void QuantiseAttended(int32_t thread);
  void AddProduct(int32_t thread, const Projection& projection, const ActivationBuffer& x,
                  const NormWeights& post_norm);
  void AddNormed(int32_t thread, const NormWeights& post_norm);
  void Multiply(const Projection& projection, const ActivationBuffer& x, int64_t first_tile,
                int64_t last_tile, float* y, int64_t stride) const;
  void FeedForward(int32_t thread, const LayerWeights& layer);
  void NormWanted(int32_t thread);
  void Head(int32_t thread, ForwardOutput& output);
  void BestOfHead(int32_t thread, int32_t best_of);
  void Layer(int32_t thread, int32_t layer);

  void TurnRow(int64_t row);
  void Rotate(float* head, int64_t row, int32_t rotary) const;
  void FinishHead(int64_t row, int64_t head, int32_t layer, ThreadScratch& scratch);
  void AttendUnit(const AttentionUnit& unit, int32_t layer, ThreadScratch& scratch);
  void FindPages(const Row& row, const AttentionUnit& unit, int32_t layer, ThreadScratch& scratch,
                 const uint16_t** keys, const uint16_t** values);

  ModelConfig config_;
  Weights weights_;
  const Kernels& kernels_;
  PageStore store_;
  KvCache cache_;
  ThreadPool pool_;
  std::vector<ThreadScratch> scratch_;
  Workspace work_;
  LogitBuffers logits_;
  std::vector<int32_t> windows_;  // Of the layers, each once.
};

// Cosines and sines of a row's position.
void CpuTransformer::TurnRow(int64_t row) {
  const int64_t pairs = config_.head_dim / 2;
  const double position = work_.rows[row].position;
  for (size_t kind = 0; kind < config_.rotaries.size(); ++kind) {
    float* turn = work_.turns[kind].data() + row * 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = position * config_.rotaries[kind].frequencies[i];
      turn[i] = static_cast<float>(std::cos(angle));
      turn[pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// A pair (a, b) turns to (a cos - b sin, b cos + a sin); pairs are neighbours or lie in the two
// halves of a head.
void CpuTransformer::Rotate(float* head, int64_t row, int32_t rotary) const {
  const int64_t pairs = config_.head_dim / 2;
  const float* cosines = work_.turns[rotary].data() + row * 2 * pairs;
  const float* sines = cosines + pairs;
  const int64_t step = config_.rope_interleaved ? 1 : pairs;
  const int64_t stride = config_.rope_interleaved ? 2 : 1;
  for (int64_t i = 0; i < pairs; ++i) {
    float& a = head[i * stride];
    float& b = head[i * stride + step];
    const float turned = a * cosines[i] - b * sines[i];
    b = b * cosines[i] + a * sines[i];
    a = turned;
  }
}

void CpuTransformer::SizeScratch(ThreadScratch& scratch) const {
  const int64_t dim = config_.head_dim;
  const int64_t chunks = config_.context_length / kAttentionChunk + 1;
  scratch.queries.resize(kHeadsTogether * dim);
  scratch.scores.resize(kHeadsTogether * kAttentionChunk);
  scratch.keys.resize(kAttentionChunk * dim);
  scratch.values.resize(kAttentionChunk * dim);
  scratch.halves.resize(2 * dim);
  scratch.weighted.resize(chunks);
  scratch.largest.resize(chunks);
  scratch.mass.resize(chunks);
}

absl::StatusOr<ForwardOutput> CpuTransformer::Forward(const ForwardBatch& batch) {
  PACELINE_RETURN_IF_ERROR(CheckBatch(batch, config_, cache_));
  std::vector<int32_t> lengths;
  for (const Segment& segment : batch.segments) lengths.push_back(cache_.Length(segment.sequence));
  ForwardOutput output;
  absl::Status status;
  try {
    const int64_t wanted = batch.NumWantedRows();
    output = batch.best_of > 0 ? ForwardOutput(std::vector<BestLogit>(wanted))
                               : logits_.Rows(wanted, config_.vocab_size);
    status = Run(batch, output);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("memory: expected room for a pass, got none");
  }
  if (status.ok()) return output;
  for (size_t i = 0; i < lengths.size(); ++i) {
    PACELINE_RETURN_IF_ERROR(cache_.Truncate(batch.segments[i].sequence, lengths[i]));
  }
  return status;
}

SegmentPlan PlanSegment(const Segment& segment, int32_t base, std::vector<int64_t> slots) {
  SegmentPlan plan{&segment, base, true, std::move(slots)};
  for (int32_t i = 0; i < static_cast<int32_t>(segment.tokens.size()); ++i) {
    plan.chain = plan.chain && segment.Parent(i) == i - 1;
  }
  return plan;
}

Row PlanRow(const SegmentPlan& plan, int32_t index) {
  Row row{&plan, index, 0, -1, {}};
  if (plan.chain) {
    row.position = plan.base + index;
    return row;
  }
  for (int32_t i = index; i >= 0; i = plan.segment->Parent(i)) {
    row.tail.push_back(plan.slots[plan.base + i]);
  }
  std::reverse(row.tail.begin(), row.tail.end());
  row.position = plan.base + static_cast<int32_t>(row.tail.size()) - 1;
  return row;
}

absl::Status CpuTransformer::Run(const ForwardBatch& batch, ForwardOutput& output) {
  std::vector<SegmentPlan> plans;
  plans.reserve(batch.segments.size());
  std::vector<Row> rows;
  int64_t num_partials = 0;
  const auto run = [&] {
    if (rows.empty()) return;
    RunPass(std::move(rows), batch, output);
    rows.clear();
    num_partials = 0;
  };
  for (const Segment& segment : batch.segments) {
    const int32_t base = cache_.Length(segment.sequence);
    const auto count = static_cast<int32_t>(segment.tokens.size());
    PACELINE_RETURN_IF_ERROR(cache_.Append(segment.sequence, count).status());
    plans.push_back(PlanSegment(segment, base, cache_.Slots(segment.sequence)));
  }
  int64_t next_output = 0;
  for (const SegmentPlan& plan : plans) {
    for (int32_t i = 0; i < static_cast<int32_t>(plan.segment->tokens.size()); ++i) {
      Row row = PlanRow(plan, i);
      if (plan.segment->Wants(i)) row.output = next_output++;
      const auto full = static_cast<int64_t>(rows.size()) == kMaxRows;
      if (full || num_partials + row.num_chunks() > kMaxPartials) run();
      num_partials += row.num_chunks();
      rows.push_back(std::move(row));
    }
  }
  run();
  return absl::OkStatus();
}

// Rows from `row` on, at most `limit`, that can attend to a chunk together.
int32_t RowsTogether(std::span<const Row> rows, int32_t row, int32_t chunk, int32_t window,
                     int64_t limit) {
  const int64_t end = (chunk + int64_t{1}) * kAttentionChunk;
  const auto joins = [&](const Row& other) {
    return other.plan == rows[row].plan && other.SeesChunk(chunk, window) &&
           other.InOrder(std::min<int64_t>(end, other.position + 1));
  };
  int32_t count = 1;
  if (!joins(rows[row])) return count;
  while (count < limit && row + count < std::ssize(rows) && joins(rows[row + count])) ++count;
  return count;
}

// Units of a chunk and group follow each other, so that keys and values are still near at hand.
std::vector<AttentionUnit> CpuTransformer::PlanUnits(int32_t window) const {
  const auto rows = static_cast<int32_t>(num_rows());
  const int64_t limit = std::max<int64_t>(1, kHeadsTogether / heads_in_group());
  int32_t most_chunks = 0;
  for (const Row& row : work_.rows) {
    most_chunks = std::max(most_chunks, static_cast<int32_t>(row.num_chunks()));
  }
  std::vector<AttentionUnit> units;
  for (int32_t chunk = 0; chunk < most_chunks; ++chunk) {
    const auto first_unit = std::ssize(units);
    for (int32_t row = 0; row < rows;) {
      if (!work_.rows[row].SeesChunk(chunk, window)) {
        ++row;
        continue;
      }
      const int32_t together = RowsTogether(work_.rows, row, chunk, window, limit);
      units.push_back({row, together, 0, chunk});
      row += together;
    }
    const auto last_unit = std::ssize(units);
    for (int32_t group = 1; group < config_.num_kv_heads; ++group) {
      for (auto i = first_unit; i < last_unit; ++i) {
        units.push_back(units[i]);
        units.back().group = group;
      }
    }
  }
  return units;
}

void CpuTransformer::PlanAttention(int32_t num_layers) {
  work_.units.clear();
  for (const int32_t window : windows_) work_.units.push_back(PlanUnits(window));
  if (std::ssize(work_.units_taken) < num_layers) {
    work_.units_taken = std::vector<std::atomic<int32_t>>(num_layers);
  }
  for (std::atomic<int32_t>& taken : work_.units_taken) taken = 0;
}

void CpuTransformer::SizeWorkspace(int32_t num_layers) {
  const int64_t rows = num_rows();
  int64_t num_partials = 0;
  work_.first_partial.clear();
  const int64_t num_counters = rows * config_.num_kv_heads;
  if (static_cast<int64_t>(work_.chunks_left.size()) < num_counters) {
    work_.chunks_left = std::vector<std::atomic<int32_t>>(num_counters);
  }
  for (int32_t row = 0; row < rows; ++row) {
    work_.first_partial.push_back(num_partials);
    num_partials += work_.rows[row].num_chunks();
    for (int32_t group = 0; group < config_.num_kv_heads; ++group) {
      work_.chunks_left[row * config_.num_kv_heads + group] = ChunksIn(work_.rows[row], 0);
    }
  }
  PlanAttention(num_layers);
  work_.wanted_outputs.clear();
  for (const Row& row : work_.rows) {
    if (row.output >= 0) work_.wanted_outputs.push_back(row.output);
  }
  const int64_t hidden = config_.hidden_size;
  const int64_t inner = config_.feed_forward_size;
  for (std::vector<float>& turns : work_.turns) turns.resize(rows * config_.head_dim);
  work_.hidden.resize(rows * hidden);
  work_.normed.Resize(rows, hidden);
  work_.projected.resize(rows * projected_size());
  work_.largest.resize(num_partials * config_.num_heads);
  work_.mass.resize(num_partials * config_.num_heads);
  work_.weighted.resize(num_partials * query_size());
  work_.attended.Resize(rows, query_size());
  work_.gate.resize(rows * inner);
  work_.up.resize(rows * inner);
  work_.inside.Resize(rows, inner);
  work_.delta.resize(rows * hidden);
  work_.wanted.Resize(std::ssize(work_.wanted_outputs), hidden);
}

void CpuTransformer::RunPass(std::vector<Row> rows, const ForwardBatch& batch,
                             ForwardOutput& output) {
  const int32_t num_layers = batch.num_layers > 0 ? batch.num_layers : config_.num_layers;
  work_.rows = std::move(rows);
  SizeWorkspace(num_layers);
  const int64_t num_wanted = std::ssize(work_.wanted_outputs);
  pool_.Run([&](int32_t thread) {
    Embed(thread);
    for (int32_t layer = 0; layer < num_layers; ++layer) Layer(thread, layer);
    NormWanted(thread);
    pool_.Wait();
    if (num_wanted == 0) return;
    batch.best_of > 0 ? BestOfHead(thread, batch.best_of) : Head(thread, output);
  });
  if (batch.best_of == 0) return;
  for (int64_t i = 0; i < num_wanted; ++i) {
    BestLogit& best = output.MutableBest(work_.wanted_outputs[i]);
    for (const ThreadScratch& scratch : scratch_) best.Merge(scratch.best[i]);
  }
}

void CpuTransformer::Layer(int32_t thread, int32_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  Norm(thread, weights.attention_norm);
  pool_.Wait();
  Project(thread, layer);
  pool_.Wait();
  Attend(layer, scratch_[thread]);
  pool_.Wait();
  if (!GroupsFillBlocks()) {
    QuantiseAttended(thread);
    pool_.Wait();
  }
  AddProduct(thread, weights.attention_out, work_.attended, weights.attention_post_norm);
  pool_.Wait();
  AddNormed(thread, weights.attention_post_norm);
  Norm(thread, weights.feed_norm);
  pool_.Wait();
  FeedForward(thread, weights);
  pool_.Wait();
  AddProduct(thread, weights.down, work_.inside, weights.feed_post_norm);
  pool_.Wait();
  AddNormed(thread, weights.feed_post_norm);
}

void CpuTransformer::Embed(int32_t thread) {
  const auto [first, last] = PartOf(num_rows(), thread, pool_.num_threads());
  const int64_t hidden = config_.hidden_size;
  for (int64_t row = first; row < last; ++row) {
    float* x = work_.hidden.data() + row * hidden;
    weights_.embedding->Unpack(work_.rows[row].token(), x);
    if (config_.embedding_scale != 1.0f) {
      for (int64_t i = 0; i < hidden; ++i) x[i] *= config_.embedding_scale;
    }
    if (config_.learned_positions) {
      const float* position = weights_.positions.data() + work_.rows[row].position * hidden;
      for (int64_t i = 0; i < hidden; ++i) x[i] += position[i];
    }
    TurnRow(row);
  }
}

// Rows are divided as in Embed, so that no barrier is needed before the first norm.
void CpuTransformer::Norm(int32_t thread, const NormWeights& weights) {
  const int64_t hidden = config_.hidden_size;
  const auto [first, last] = PartOf(num_rows(), thread, pool_.num_threads());
  for (int64_t row = first; row < last; ++row) {
    NormRow(work_.hidden.data() + row * hidden, weights, work_.normed.Row(row));
    work_.normed.Quantise(kernels_, row, 0, hidden);
  }
}

void CpuTransformer::NormRow(const float* x, const NormWeights& weights, float* y) const {
  if (config_.norm == NormKind::kRms) {
    kernels_.rms_norm(x, weights.weight.data(), config_.hidden_size, config_.norm_epsilon, y);
  } else {
    kernels_.layer_norm(x, weights.weight.data(), weights.bias.data(), config_.hidden_size,
                        config_.norm_epsilon, y);
  }
}

// Tiles [first_tile, last_tile) of the products of all rows, with the bias.
void CpuTransformer::Multiply(const Projection& projection, const ActivationBuffer& x,
                              int64_t first_tile, int64_t last_tile, float* y,
                              int64_t stride) const {
  const PackedMatrix& matrix = projection.matrix;
  kernels_.multiply(matrix, x.View(), num_rows(), first_tile, last_tile, y, stride);
  if (projection.bias.empty()) return;
  const int64_t first = first_tile * kTileRows;
  const int64_t count = std::min(matrix.rows(), last_tile * kTileRows) - first;
  for (int64_t row = 0; row < num_rows(); ++row) {
    for (int64_t i = 0; i < count; ++i) y[row * stride + i] += projection.bias[first + i];
  }
}

// Queries, keys and values by heads: a thread turns the heads that it has computed, and writes keys
// and values to the cache.
void CpuTransformer::Project(int32_t thread, int32_t layer) {
  const LayerWeights& weights = weights_.layers[layer];
  const int64_t dim = config_.head_dim;
  const int64_t heads = config_.num_heads + 2 * int64_t{config_.num_kv_heads};
  const auto [first, last] = PartOf(heads, thread, pool_.num_threads());
  int64_t begin = 0;
  for (const Projection* projection : {&weights.query, &weights.key, &weights.value}) {
    const int64_t end = begin + projection->matrix.rows() / dim;
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(last, end);
    if (from < to) {
      Multiply(*projection, work_.normed, (from - begin) * dim / kTileRows,
               (to - begin) * dim / kTileRows, work_.projected.data() + from * dim,
               projected_size());
    }
    begin = end;
  }
  for (int64_t row = 0; row < num_rows(); ++row) {
    for (int64_t head = first; head < last; ++head) FinishHead(row, head, layer, scratch_[thread]);
  }
}

void CpuTransformer::FinishHead(int64_t row, int64_t head, int32_t layer, ThreadScratch& scratch) {
  const int64_t dim = config_.head_dim;
  const int64_t first_key = config_.num_heads;
  const int64_t first_value = first_key + config_.num_kv_heads;
  float* values = work_.projected.data() + row * projected_size() + head * dim;
  const Row& at = work_.rows[row];
  if (head < first_value) {
    const LayerWeights& weights = weights_.layers[layer];
    const std::vector<float>& norm =
        (head < first_key ? weights.query_norm : weights.key_norm).weight;
    if (!norm.empty()) kernels_.rms_norm(values, norm.data(), dim, config_.norm_epsilon, values);
    if (!config_.rotaries.empty()) Rotate(values, row, config_.layers[layer].rotary);
  }
  if (head < first_key) {
    for (int64_t d = 0; d < dim; ++d) values[d] *= config_.attention_scale;
    return;
  }
  kernels_.to_half(values, dim, scratch.halves.data());
  if (head < first_value) {
    store_.WriteKey(layer, at.slot(), static_cast<int32_t>(head - first_key),
                    scratch.halves.data());
  } else {
    store_.WriteValue(layer, at.slot(), static_cast<int32_t>(head - first_value),
                      scratch.halves.data());
  }
}

// Threads take units as they come to them. Whoever finishes the last chunk of a row and group adds
// up its chunks, in their order.
void CpuTransformer::Attend(int32_t layer, ThreadScratch& scratch) {
  const auto kind = std::find(windows_.begin(), windows_.end(), config_.layers[layer].window);
  const std::vector<AttentionUnit>& units = work_.units[kind - windows_.begin()];
  const auto count = static_cast<int32_t>(units.size());
  std::atomic<int32_t>& taken = work_.units_taken[layer];
  for (int32_t i; (i = taken.fetch_add(1, std::memory_order_relaxed)) < count;) {
    const AttentionUnit& unit = units[i];
    AttendUnit(unit, layer, scratch);
    for (int32_t row = unit.row; row < unit.row + unit.num_rows; ++row) {
      std::atomic<int32_t>& left = work_.chunks_left[row * config_.num_kv_heads + unit.group];
      if (left.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
      Combine(row, unit.group, layer, scratch);
      if (layer + 1 == config_.num_layers) continue;
      left.store(ChunksIn(work_.rows[row], layer + 1), std::memory_order_relaxed);
    }
  }
}

void CpuTransformer::AttendUnit(const AttentionUnit& unit, int32_t layer, ThreadScratch& scratch) {
  const int64_t dim = config_.head_dim;
  const int64_t heads = heads_in_group();
  // Of the rows of a chain the last one sees most.
  const Row& widest = work_.rows[unit.row + unit.num_rows - 1];
  const uint16_t* keys[kChunkPages];
  const uint16_t* values[kChunkPages];
  FindPages(widest, unit, layer, scratch, keys, values);
  const int32_t window = config_.layers[layer].window;
  const int64_t chunk_begin = unit.chunk * kAttentionChunk;
  scratch.heads.clear();
  for (int64_t row = unit.row; row < unit.row + unit.num_rows; ++row) {
    const float* queries = work_.projected.data() + row * projected_size();
    const int64_t first =
        std::max<int64_t>(0, work_.rows[row].FirstSeen(window) - chunk_begin);
    const int64_t partial = (work_.first_partial[row] + unit.chunk) * config_.num_heads;
    for (int64_t head = unit.group * heads; head < (unit.group + 1) * heads; ++head) {
      scratch.heads.push_back({queries + head * dim, first, work_.rows[row].CountIn(unit.chunk),
                               work_.largest.data() + partial + head,
                               work_.mass.data() + partial + head,
                               work_.weighted.data() + (partial + head) * dim});
    }
  }
  kernels_.attend({scratch.heads.data(), std::ssize(scratch.heads), keys, values, dim,
                   scratch.queries.data(), scratch.scores.data()});
}

// The pages of a unit's chunk for a row: the cache's own, or such as are put together here where a
// tree's positions do not lie in their order.
void CpuTransformer::FindPages(const Row& row, const AttentionUnit& unit, int32_t layer,
                               ThreadScratch& scratch, const uint16_t** keys,
                               const uint16_t** values) {
  const int64_t first = unit.chunk * kAttentionChunk;
  for (int64_t page = 0; page * kPage < row.CountIn(unit.chunk); ++page) {
    const int64_t at = first + page * kPage;
    if (row.InOrder(std::min<int64_t>(at + kPage, row.position + 1))) {
      keys[page] = store_.Keys(layer, row.SlotOf(at) / kPage, unit.group);
      values[page] = store_.Values(layer, row.SlotOf(at) / kPage, unit.group);
      continue;
    }
    uint16_t* gathered_keys = scratch.keys.data() + page * kPage * config_.head_dim;
    uint16_t* gathered_values = scratch.values.data() + page * kPage * config_.head_dim;
    for (int64_t i = 0; i < kPage && at + i <= row.position; ++i) {
      store_.Gather(layer, row.SlotOf(at + i), unit.group, i, gathered_keys, gathered_values);
    }
    keys[page] = gathered_keys;
    values[page] = gathered_values;
  }
}

// The heads of a group, then their int8 form if they fill whole blocks; if not, the region that
// reads them does it.
void CpuTransformer::Combine(int64_t row, int64_t group, int32_t layer, ThreadScratch& scratch) {
  const int64_t dim = config_.head_dim;
  const int64_t heads = config_.num_heads;
  const int64_t in_group = heads_in_group();
  const int64_t first_chunk = work_.rows[row].FirstChunk(config_.layers[layer].window);
  const int64_t chunks = work_.rows[row].num_chunks() - first_chunk;
  for (int64_t head = group * in_group; head < (group + 1) * in_group; ++head) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t partial = (work_.first_partial[row] + first_chunk + chunk) * heads + head;
      scratch.weighted[chunk] = work_.weighted.data() + partial * dim;
      scratch.largest[chunk] = work_.largest[partial];
      scratch.mass[chunk] = work_.mass[partial];
    }
    kernels_.combine(scratch.weighted.data(), scratch.largest.data(), scratch.mass.data(), chunks,
                     dim, work_.attended.Row(row) + head * dim);
  }
  if (GroupsFillBlocks()) {
    work_.attended.Quantise(kernels_, row, group * in_group * dim, (group + 1) * in_group * dim);
  }
}

void CpuTransformer::QuantiseAttended(int32_t thread) {
  const auto [first, last] = PartOf(num_rows(), thread, pool_.num_threads());
  for (int64_t row = first; row < last; ++row) {
    work_.attended.Quantise(kernels_, row, 0, query_size());
  }
}

// The product of what a part of the layer gives, by columns. It is added to the residual stream
// here, unless it is to be normed as a whole first.
void CpuTransformer::AddProduct(int32_t thread, const Projection& projection,
                                const ActivationBuffer& x, const NormWeights& post_norm) {
  const int64_t hidden = config_.hidden_size;
  const auto [first, last] = PartOf(projection.matrix.num_tiles(), thread, pool_.num_threads());
  Multiply(projection, x, first, last, work_.delta.data() + first * kTileRows, hidden);
  if (!post_norm.weight.empty()) return;
  for (int64_t row = 0; row < num_rows(); ++row) {
    const int64_t end = row * hidden + std::min(hidden, last * kTileRows);
    for (int64_t i = row * hidden + first * kTileRows; i < end; ++i) {
      work_.hidden[i] += work_.delta[i];
    }
  }
}

// Rows are divided as in Norm, which follows.
void CpuTransformer::AddNormed(int32_t thread, const NormWeights& post_norm) {
  if (post_norm.weight.empty()) return;
  const int64_t hidden = config_.hidden_size;
  const auto [first, last] = PartOf(num_rows(), thread, pool_.num_threads());
  for (int64_t row = first; row < last; ++row) {
    float* normed = work_.delta.data() + row * hidden;
    NormRow(normed, post_norm, normed);
    for (int64_t i = 0; i < hidden; ++i) work_.hidden[row * hidden + i] += normed[i];
  }
}

// Gate and up by whole blocks of the down projection's inputs, which the thread then quantises.
void CpuTransformer::FeedForward(int32_t thread, const LayerWeights& weights) {
  const int64_t inner = config_.feed_forward_size;
  const auto [first, last] = PartOf(inner, thread, pool_.num_threads(), kBlock);
  const int64_t first_tile = first / kTileRows;
  const int64_t last_tile = (last + kTileRows - 1) / kTileRows;
  Multiply(weights.up, work_.normed, first_tile, last_tile, work_.up.data() + first, inner);
  if (config_.gated) {
    Multiply(weights.gate, work_.normed, first_tile, last_tile, work_.gate.data() + first, inner);
  }
  const auto activate =
      config_.activation == Activation::kSilu ? kernels_.silu_multiply : kernels_.gelu_multiply;
  for (int64_t row = 0; row < num_rows(); ++row) {
    const float* up = work_.up.data() + row * inner + first;
    const float* gate = work_.gate.data() + row * inner + first;
    activate(config_.gated ? gate : up, config_.gated ? up : nullptr, last - first,
             work_.inside.Row(row) + first);
    work_.inside.Quantise(kernels_, row, first, last);
  }
}

void CpuTransformer::NormWanted(int32_t thread) {
  const int64_t hidden = config_.hidden_size;
  const auto [first, last] = PartOf(num_rows(), thread, pool_.num_threads());
  const auto wants = [](const Row& row) { return row.output >= 0; };
  int64_t next = std::count_if(work_.rows.begin(), work_.rows.begin() + first, wants);
  for (int64_t row = first; row < last; ++row) {
    if (!wants(work_.rows[row])) continue;
    NormRow(work_.hidden.data() + row * hidden, weights_.output_norm, work_.wanted.Row(next));
    work_.wanted.Quantise(kernels_, next++, 0, hidden);
  }
}

// Wanted rows follow each other in the logits as in the pass.
void CpuTransformer::Head(int32_t thread, ForwardOutput& output) {
  const auto [first, last] = PartOf(weights_.head->num_tiles(), thread, pool_.num_threads());
  kernels_.multiply(*weights_.head, work_.wanted.View(), std::ssize(work_.wanted_outputs), first,
                    last, output.MutableRow(work_.wanted_outputs.front()) + first * kTileRows,
                    output.width());
}

// The likeliest id of the thread's part of the head; logits do not leave the nearest cache.
void CpuTransformer::BestOfHead(int32_t thread, int32_t best_of) {
  constexpr int64_t kTiles = 16;
  constexpr int64_t kWidth = kTiles * kTileRows;
  const int64_t num_wanted = std::ssize(work_.wanted_outputs);
  ThreadScratch& scratch = scratch_[thread];
  scratch.best.assign(num_wanted, BestLogit());
  scratch.logits.resize(num_wanted * kWidth);
  const auto [first, last] =
      PartOf((best_of + kTileRows - 1) / kTileRows, thread, pool_.num_threads());
  for (int64_t tile = first; tile < last; tile += kTiles) {
    const int64_t first_id = tile * kTileRows;
    const int64_t count = std::min(std::min(last - tile, kTiles) * kTileRows, best_of - first_id);
    kernels_.multiply(*weights_.head, work_.wanted.View(), num_wanted, tile,
                      std::min(last, tile + kTiles), scratch.logits.data(), kWidth);
    for (int64_t i = 0; i < num_wanted; ++i) {
      const std::span<const float> logits(scratch.logits.data() + i * kWidth, count);
      scratch.best[i].Merge(BestLogit::Of(logits, static_cast<int32_t>(first_id)));
    }
  }
}

}  // namespace
}  // namespace cpu

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadCpuModel(const WeightSource& weights,
                                                            const ModelOptions& options) {
  PACELINE_ASSIGN_OR_RETURN(ModelConfig config, ConfigFor(weights.config(), options));
  PACELINE_ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::KernelsNamed(options.isa));
  if (config.head_dim % cpu::kTileRows != 0) {
    return absl::UnimplementedError(absl::StrCat("head size: expected a multiple of ",
                                                 cpu::kTileRows, " for the fast engine, got ",
                                                 config.head_dim));
  }
  PACELINE_ASSIGN_OR_RETURN(cpu::Weights packed, cpu::LoadWeights(weights));
  weights.ReleasePages();
  const int64_t positions = options.CachePositions(config);
  return std::make_unique<cpu::CpuTransformer>(std::move(config), std::move(packed), *kernels,
                                               cpu::ThreadsFor(options.num_threads), positions);
}

}  // namespace paceline
