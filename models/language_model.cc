#include "models/language_model.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bad_row.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

int32_t LargestDepth(const Segment& segment) {
  const auto count = static_cast<int32_t>(segment.tokens.size());
  if (segment.parents.empty()) return count;
  int32_t largest = 0;
  for (int32_t row = 0; row < count; ++row) largest = std::max(largest, segment.Depth(row));
  return largest;
}

absl::Status CheckSegment(const Segment& segment, const ModelConfig& config, const KvCache& cache) {
  const int32_t cached = cache.Length(segment.sequence);
  const auto count = static_cast<int64_t>(segment.tokens.size());
  if (cached < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sequence: expected a live sequence of this model, got ", segment.sequence));
  }
  if (count == 0) return absl::InvalidArgumentError("tokens: expected at least one row, got none");
  if (!segment.parents.empty() && segment.parents.size() != segment.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parents: expected ", count, " entries or none, got ", segment.parents.size()));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (segment.tokens[i] < 0 || segment.tokens[i] >= config.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", i, "]: expected an id in [0, ",
                                                     config.vocab_size, "), got ",
                                                     segment.tokens[i]));
    }
    if (!segment.parents.empty() && (segment.parents[i] < -1 || segment.parents[i] >= i)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parents[", i, "]: expected -1 or an earlier row, got ", segment.parents[i]));
    }
  }
  const int64_t positions = cached + int64_t{LargestDepth(segment)};
  if (positions > config.context_length) {
    return absl::OutOfRangeError(absl::StrCat("context: expected at most ", config.context_length,
                                              " positions, got ", positions));
  }
  return absl::OkStatus();
}

}  // namespace

int32_t Segment::Depth(int32_t row) const {
  if (parents.empty()) return row + 1;
  int32_t depth = 0;
  for (; row >= 0; row = parents[row]) ++depth;
  return depth;
}

absl::Status CheckBatch(const ForwardBatch& batch, const ModelConfig& config,
                        const KvCache& cache) {
  if (batch.best_of < 0 || batch.best_of > config.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("best_of: expected a number in [0, ",
                                                   config.vocab_size, "], got ", batch.best_of));
  }
  if (batch.num_layers < 0 || batch.num_layers > config.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_layers: expected a number in [0, ", config.num_layers, "], got ", batch.num_layers));
  }
  for (const Segment& segment : batch.segments) {
    PACELINE_RETURN_IF_ERROR(CheckSegment(segment, config, cache));
  }
  return absl::OkStatus();
}

BestLogit BestLogit::Of(std::span<const float> logits, int32_t first_id) {
  constexpr size_t kLanes = 16;
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  float largest[kLanes], zero[kLanes] = {};  // 0 times what is not finite is NaN.
  std::fill_n(largest, kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = larger(logits[i + lane], largest[lane]);
      zero[lane] += logits[i + lane] * 0.0f;
    }
  }
  for (; i < logits.size(); ++i) {
    largest[0] = larger(logits[i], largest[0]);
    zero[0] += logits[i] * 0.0f;
  }
  BestLogit best;
  for (const float value : largest) best.value = larger(value, best.value);
  if (std::accumulate(zero, zero + kLanes, 0.0f) != 0.0f) {
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float value) {
      return !(value < std::numeric_limits<float>::infinity());
    });
    if (bad != logits.end()) {
      best.bad_id = first_id + static_cast<int32_t>(bad - logits.begin());
      best.bad_value = *bad;
    }
  }
  if (!(best.value > -std::numeric_limits<float>::infinity())) return best;
  const auto at = std::find(logits.begin(), logits.end(), best.value);
  best.id = first_id + static_cast<int32_t>(at - logits.begin());
  return best;
}

void BestLogit::Merge(const BestLogit& higher) {
  if (higher.value > value) value = higher.value, id = higher.id;
  if (bad_id < 0) bad_id = higher.bad_id, bad_value = higher.bad_value;
}

absl::StatusOr<int32_t> ForwardOutput::BestAmong(int64_t row, int32_t count) const {
  const BestLogit best =
      best_.empty() ? BestLogit::Of(Row(row).first(static_cast<size_t>(count)), 0) : best_[row];
  if (best.bad_id >= 0) return BadLogit(best.bad_id, best.bad_value);
  if (best.id < 0) return NoTokenLeft();
  return best.id;
}

int64_t ForwardBatch::NumWantedRows() const {
  int64_t count = 0;
  for (const Segment& segment : segments) {
    if (segment.wish == RowWish::kAll) count += static_cast<int64_t>(segment.tokens.size());
    if (segment.wish == RowWish::kLast) ++count;
  }
  return count;
}

}  // namespace paceline
