// Memory that the rounds of one thread share, so that those after the first few allocate nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "verify/outcome.h"

namespace paceline {

// What rules work in and what they return, to be used again. Not thread-safe; outlives what it
// lends to.
class RuleMemory {
 public:
  // A vector with the capacity that an earlier one had.
  std::vector<double> TakeRow() {
    if (rows_.empty()) return {};
    std::vector<double> row = std::move(rows_.back());
    rows_.pop_back();
    return row;
  }
  void GiveRow(std::vector<double> row) { rows_.push_back(std::move(row)); }

  // An empty outcome, and one that nobody reads any more.
  VerifyOutcome TakeOutcome() {
    outcome_.Clear();
    return std::move(outcome_);
  }
  void GiveOutcome(VerifyOutcome outcome) { outcome_ = std::move(outcome); }

 private:
  std::vector<std::vector<double>> rows_;
  VerifyOutcome outcome_;
};

// A row of weights for as long as this lives, in memory lent by `memory`, or its own if that is
// null.
class LentRow {
 public:
  explicit LentRow(RuleMemory* memory) : memory_(memory) {}
  ~LentRow() {
    if (memory_ != nullptr && row_.capacity() > 0) memory_->GiveRow(std::move(row_));
  }
  LentRow(LentRow&& other) noexcept : memory_(other.memory_), row_(std::move(other.row_)) {}
  LentRow& operator=(LentRow&& other) noexcept {
    std::swap(memory_, other.memory_);
    row_.swap(other.row_);
    return *this;
  }

  // The row with `size` entries, of which those that are new are unspecified.
  std::vector<double>& Resize(size_t size) {
    if (memory_ != nullptr && row_.capacity() == 0) row_ = memory_->TakeRow();
    row_.resize(size);
    return row_;
  }
  const std::vector<double>& operator*() const { return row_; }

 private:
  RuleMemory* memory_;
  std::vector<double> row_;
};

}  // namespace paceline
