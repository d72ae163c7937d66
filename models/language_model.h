// The interface between a transformer and everything that runs one.
#pragma once

#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/kv_cache.h"
#include "models/model_config.h"

namespace paceline {

// Which rows of a segment give logits. A row is one token of the segment.
enum class RowWish { kNone, kLast, kAll };

// The rows of one sequence in a pass: M tokens that continue what the sequence's cache holds.
// `parents` is empty for a chain; otherwise parents[i] is the row that row i continues, -1 the
// cache's last entry. Row i sees the whole cache, its ancestors among the rows, and itself; its
// position is cache length + depth.
struct Segment {
  SequenceId sequence;
  std::span<const int32_t> tokens;   // [M], not owned
  std::span<const int32_t> parents;  // [M] or empty, not owned
  RowWish wish = RowWish::kAll;

  // The row that row `row` continues, -1 the cache's last entry.
  int32_t Parent(int32_t row) const { return parents.empty() ? row - 1 : parents[row]; }
  // Rows from the first ancestor among the rows to `row`, both included.
  int32_t Depth(int32_t row) const;
  bool Wants(int32_t row) const {
    return wish == RowWish::kAll ||
           (wish == RowWish::kLast && row + 1 == static_cast<int32_t>(tokens.size()));
  }
};

struct ForwardBatch {
  std::vector<Segment> segments;
  int32_t num_layers = 0;  // Run only the first layers, then final norm and head; 0 runs all.
  // n > 0: of the wanted rows only BestAmong(row, n) will be asked; an engine may keep no logits.
  int32_t best_of = 0;

  int64_t NumWantedRows() const;
};

// What every model refuses before it changes anything: kInvalidArgument (ids, parents, unknown
// sequence, number of layers), kOutOfRange (context length).
absl::Status CheckBatch(const ForwardBatch& batch, const ModelConfig& config, const KvCache& cache);

// The likeliest of a range of logits, the lowest id of equals.
struct BestLogit {
  float value = -std::numeric_limits<float>::infinity();
  int32_t id = -1;      // -1: all are -inf.
  int32_t bad_id = -1;  // The first that is NaN or +inf, which no model should give; -1 is none.
  float bad_value = 0;

  static BestLogit Of(std::span<const float> logits, int32_t first_id);
  // With those of a range of higher ids.
  void Merge(const BestLogit& higher);
};

// Logit rows in the order of segments and of their rows, float32 [rows, width], or the likeliest id
// of each alone. Copies share memory.
class ForwardOutput {
 public:
  ForwardOutput() = default;
  // Rows that are still to be written.
  ForwardOutput(int64_t num_rows, int64_t width)
      : ForwardOutput(std::make_shared_for_overwrite<float[]>(num_rows * width), num_rows, width) {}
  ForwardOutput(std::shared_ptr<float[]> logits, int64_t num_rows, int64_t width)
      : logits_(std::move(logits)), num_rows_(num_rows), width_(width) {}

  explicit ForwardOutput(std::vector<BestLogit> best)
      : num_rows_(std::ssize(best)), best_(std::move(best)) {}

  int64_t num_rows() const { return num_rows_; }
  int64_t width() const { return width_; }  // The model's head, at least the tokenizer's vocabulary.
  std::span<const float> Row(int64_t row) const {
    return {logits_.get() + row * width_, static_cast<size_t>(width_)};
  }
  float* MutableRow(int64_t row) { return logits_.get() + row * width_; }
  BestLogit& MutableBest(int64_t row) { return best_[row]; }
  // The likeliest id of a row below `count`, which is the batch's best_of where that was given.
  // Errors: those of Pipeline::Apply for such a row.
  absl::StatusOr<int32_t> BestAmong(int64_t row, int32_t count) const;

 private:
  std::shared_ptr<float[]> logits_;
  int64_t num_rows_ = 0;
  int64_t width_ = 0;
  std::vector<BestLogit> best_;
};

// What a row of a pass costs: the planner's and the benchmarks' arithmetic. Attention is not in it.
struct PassWork {
  int64_t weight_bytes = 0;   // Read by a pass, whatever its rows.
  int64_t multiplications = 0;  // Of a row, with its logits.
};

// A decoder-only transformer with its paged cache. Not thread-safe.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  // Runs the rows of `batch` and appends one cache entry a row to each segment's sequence. With
  // num_layers > 0 only these layers' entries are written: the caller truncates them afterwards.
  // On an error the caches are as before.
  // Errors: kInvalidArgument (ids, parents, unknown sequence), kOutOfRange (context length),
  // kResourceExhausted (cache or memory).
  virtual absl::StatusOr<ForwardOutput> Forward(const ForwardBatch& batch) = 0;

  virtual KvCache& cache() = 0;

  // Tokens a sequence may hold, N of layers, entries of a logit row.
  virtual int32_t context_length() const = 0;
  virtual int32_t num_layers() const = 0;
  virtual int64_t logit_width() const = 0;

  virtual PassWork work() const = 0;

  // Engine and what it runs on, in a few words for people: "fast engine, avx2, 2 threads".
  virtual std::string Describe() const = 0;
};

}  // namespace paceline
