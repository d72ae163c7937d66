#include "models/language_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
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
  if (batch.num_layers < 0 || batch.num_layers > config.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_layers: expected a number in [0, ", config.num_layers, "], got ", batch.num_layers));
  }
  for (const Segment& segment : batch.segments) {
    PACELINE_RETURN_IF_ERROR(CheckSegment(segment, config, cache));
  }
  return absl::OkStatus();
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
