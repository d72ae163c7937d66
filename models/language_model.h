// The interface between a transformer and everything that runs one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
};

// What every model refuses before it changes anything: kInvalidArgument (ids, parents, unknown
// sequence, number of layers), kOutOfRange (context length).
absl::Status CheckBatch(const ForwardBatch& batch, const ModelConfig& config, const KvCache& cache);

// Logit rows in the order of segments and of their rows. Owns its memory.
struct ForwardOutput {
  int64_t width = 0;  // Entries a row: the model's head, at least the tokenizer's vocabulary.
  std::vector<float> logits;  // [rows, width] float32

  int64_t num_rows() const { return width == 0 ? 0 : static_cast<int64_t>(logits.size()) / width; }
  std::span<const float> Row(int64_t row) const {
    return std::span<const float>(logits).subspan(row * width, width);
  }
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

  // Engine and what it runs on, in a few words for people: "fast engine, avx2, 2 threads".
  virtual std::string Describe() const = 0;
};

}  // namespace paceline
