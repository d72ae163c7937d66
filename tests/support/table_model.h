// A LanguageModel without weights: a row is a function of the tokens that the row can see.
//
// What a row sees is read back from the cache's slots, so that every fault of cache, rollback,
// compaction or tree attention changes the logits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "models/language_model.h"

namespace paceline::testing {

class TableModel : public LanguageModel, private KvStorage {
 public:
  // Logits after the tokens `history`, which is never empty.
  using RowFunction = std::function<std::vector<float>(std::span<const int32_t> history)>;

  TableModel(int32_t vocab_size, int32_t context_length, RowFunction row,
             int64_t max_positions = 1 << 16)
      : vocab_size_(vocab_size),
        context_length_(context_length),
        row_(std::move(row)),
        early_row_(row_),
        cache_(this, max_positions) {}

  // What a pass over the first layers answers; the model then has 4 layers.
  void set_early_row(RowFunction row) { early_row_ = std::move(row); }

  absl::StatusOr<ForwardOutput> Forward(const ForwardBatch& batch) override {
    ++num_passes_;
    if (!fail_next_.ok()) return std::exchange(fail_next_, absl::OkStatus());
    ForwardOutput output(batch.NumWantedRows(), vocab_size_);
    int64_t next_row = 0;
    for (const Segment& segment : batch.segments) {
      PACELINE_RETURN_IF_ERROR(Run(segment, batch.num_layers, output, next_row));
    }
    return output;
  }

  KvCache& cache() override { return cache_; }
  int32_t context_length() const override { return context_length_; }
  int32_t num_layers() const override { return 4; }
  int64_t logit_width() const override { return vocab_size_; }
  PassWork work() const override { return {}; }
  std::string Describe() const override { return "table of logits"; }

  // The next pass fails with `status`.
  void FailNext(absl::Status status) { fail_next_ = std::move(status); }

  int64_t num_passes() const { return num_passes_; }
  int32_t largest_position() const { return largest_position_; }
  const std::vector<int32_t>& last_tokens() const { return last_tokens_; }  // Of the last segment.

 private:
  struct Entry {
    int32_t token = -1;
    bool all_layers = false;
  };

  absl::Status Run(const Segment& segment, int32_t num_layers, ForwardOutput& output,
                   int64_t& next_row) {
    const std::vector<int64_t> before = cache_.Slots(segment.sequence);
    const auto count = static_cast<int32_t>(segment.tokens.size());
    if (static_cast<int32_t>(before.size()) + Depth(segment) > context_length_) {
      return absl::OutOfRangeError(absl::StrCat("context: expected at most ", context_length_));
    }
    PACELINE_ASSIGN_OR_RETURN(const std::vector<int64_t> slots,
                              cache_.Append(segment.sequence, count));
    for (int32_t i = 0; i < count; ++i) {
      entries_[slots[i]] = {segment.tokens[i], num_layers == 0};
      largest_position_ = std::max(largest_position_,
                                   static_cast<int32_t>(before.size()) + DepthOf(segment, i) - 1);
      if (!segment.Wants(i)) continue;
      PACELINE_ASSIGN_OR_RETURN(const std::vector<int32_t> history,
                                Visible(before, slots, segment, i, num_layers == 0));
      const std::vector<float> row = num_layers == 0 ? row_(history) : early_row_(history);
      std::copy(row.begin(), row.end(), output.MutableRow(next_row++));
    }
    last_tokens_.assign(segment.tokens.begin(), segment.tokens.end());
    return absl::OkStatus();
  }

  static int32_t Parent(const Segment& segment, int32_t i) {
    return segment.parents.empty() ? i - 1 : segment.parents[i];
  }

  static int32_t DepthOf(const Segment& segment, int32_t i) {
    int32_t depth = 0;
    for (; i >= 0; i = Parent(segment, i)) ++depth;
    return depth;
  }

  static int32_t Depth(const Segment& segment) {
    int32_t deepest = 0;
    for (size_t i = 0; i < segment.tokens.size(); ++i) {
      deepest = std::max(deepest, DepthOf(segment, static_cast<int32_t>(i)));
    }
    return deepest;
  }

  absl::StatusOr<std::vector<int32_t>> Visible(const std::vector<int64_t>& before,
                                               const std::vector<int64_t>& slots,
                                               const Segment& segment, int32_t row,
                                               bool all_layers) const {
    std::vector<int64_t> path;
    for (int32_t i = row; i >= 0; i = Parent(segment, i)) path.push_back(slots[i]);
    std::vector<int64_t> visible = before;
    visible.insert(visible.end(), path.rbegin(), path.rend());
    std::vector<int32_t> history;
    for (int64_t slot : visible) {
      if (all_layers && !entries_[slot].all_layers) {
        return absl::InternalError("a cache entry lacks the upper layers");
      }
      history.push_back(entries_[slot].token);
    }
    return history;
  }

  absl::Status Reserve(int64_t num_slots) override {
    entries_.resize(num_slots);
    return absl::OkStatus();
  }
  void Copy(std::span<const SlotCopy> copies) override {
    for (const SlotCopy& copy : copies) entries_[copy.to] = entries_[copy.from];
  }

  int32_t vocab_size_;
  int32_t context_length_;
  RowFunction row_;
  RowFunction early_row_;
  std::vector<Entry> entries_;
  KvCache cache_;
  absl::Status fail_next_;
  int64_t num_passes_ = 0;
  int32_t largest_position_ = -1;
  std::vector<int32_t> last_tokens_;
};

// Rows that depend on the whole history: a hash of it seeds a row of logits in [-scale, scale].
inline TableModel::RowFunction HashedRows(int32_t vocab_size, uint64_t seed, double scale) {
  return [=](std::span<const int32_t> history) {
    uint64_t hash = seed;
    for (int32_t token : history) hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15;
    std::vector<float> row;
    for (int32_t id = 0; id < vocab_size; ++id) {
      const double u = TokenUniform({hash, 0}, {0, Purpose::kExplore}, static_cast<uint32_t>(id));
      row.push_back(static_cast<float>((2 * u - 1) * scale));
    }
    return row;
  };
}

// A mixture of two models' rows, a draft that is `share` right.
inline TableModel::RowFunction Blend(TableModel::RowFunction right, TableModel::RowFunction wrong,
                                     double share) {
  return [=](std::span<const int32_t> history) {
    std::vector<float> row = right(history);
    const std::vector<float> other = wrong(history);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(share * row[i] + (1 - share) * other[i]);
    }
    return row;
  };
}

}  // namespace paceline::testing
