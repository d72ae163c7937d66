// Views of arrays that somebody else holds: ids and rows of numbers.
#pragma once

#include <cstdint>
#include <span>

namespace paceline {

// Token ids, node numbers or counts, in 32 or in 64 bits. Borrows.
class IdSpan {
 public:
  IdSpan() = default;
  IdSpan(const int32_t* data, int64_t size) : narrow_(data), size_(size) {}
  IdSpan(const int64_t* data, int64_t size) : wide_(data), size_(size) {}

  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t operator[](int64_t i) const { return wide_ != nullptr ? wide_[i] : narrow_[i]; }

  // `count` entries from `first` on, all of them there.
  IdSpan Part(int64_t first, int64_t count) const {
    return wide_ != nullptr ? IdSpan(wide_ + first, count) : IdSpan(narrow_ + first, count);
  }

 private:
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;  // Not null: the ids are here.
  int64_t size_ = 0;
};

// Rows of `width` numbers, one behind the other. Borrows.
template <typename Real>
struct RowSpan {
  const Real* data = nullptr;
  int64_t num_rows = 0;
  int64_t width = 0;

  bool empty() const { return num_rows == 0; }
  std::span<const Real> operator[](int64_t i) const {
    return {data + i * width, static_cast<size_t>(width)};
  }
  RowSpan Part(int64_t first, int64_t count) const { return {data + first * width, count, width}; }
};

}  // namespace paceline
