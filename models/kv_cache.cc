#include "models/kv_cache.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

absl::Status Unknown(SequenceId sequence) {
  return absl::InvalidArgumentError(
      absl::StrCat("sequence: expected a live sequence of this cache, got ", sequence));
}

int64_t PagesFor(int64_t positions) {
  return (positions + KvCache::kPageSize - 1) / KvCache::kPageSize;
}

// Ascending rows in [0, num_rows).
absl::Status CheckPath(std::span<const int32_t> path, int32_t num_rows) {
  int32_t previous = -1;
  for (size_t i = 0; i < path.size(); previous = path[i++]) {
    if (path[i] > previous && path[i] < num_rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("path[", i, "]: expected ascending rows in [0, ",
                                                   num_rows, "), got ", path[i]));
  }
  return absl::OkStatus();
}

}  // namespace

KvCache::KvCache(KvStorage* storage, int64_t max_positions)
    : storage_(storage), max_pages_(PagesFor(max_positions)) {}

bool KvCache::IsLive(SequenceId sequence) const {
  return sequence >= 0 && sequence < static_cast<int64_t>(tables_.size()) && tables_[sequence].live;
}

SequenceId KvCache::Create() {
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i].live) continue;
    tables_[i].live = true;
    return static_cast<SequenceId>(i);
  }
  tables_.push_back({true, 0, {}});
  return static_cast<SequenceId>(tables_.size() - 1);
}

absl::StatusOr<SequenceId> KvCache::Fork(SequenceId sequence) {
  if (!IsLive(sequence)) return Unknown(sequence);
  const SequenceId fork = Create();
  tables_[fork].length = tables_[sequence].length;
  tables_[fork].pages = tables_[sequence].pages;
  for (int32_t page : tables_[fork].pages) ++references_[page];
  return fork;
}

absl::Status KvCache::Release(SequenceId sequence) {
  PACELINE_RETURN_IF_ERROR(Truncate(sequence, 0));
  tables_[sequence].live = false;
  return absl::OkStatus();
}

int32_t KvCache::Length(SequenceId sequence) const {
  return IsLive(sequence) ? tables_[sequence].length : -1;
}

int64_t KvCache::pages_in_use() const {
  return pages_reserved() - static_cast<int64_t>(free_pages_.size());
}

int64_t KvCache::Slot(const Table& table, int32_t position) const {
  return static_cast<int64_t>(table.pages[position / kPageSize]) * kPageSize + position % kPageSize;
}

absl::Status KvCache::MakeFree(int64_t count) {
  const auto num_free = static_cast<int64_t>(free_pages_.size());
  if (count <= num_free) return absl::OkStatus();
  const int64_t have = pages_reserved();
  const int64_t need = have + count - num_free;
  if (need > max_pages_) {
    return absl::ResourceExhaustedError(absl::StrCat("cache: expected at most ",
                                                     max_pages_ * kPageSize,
                                                     " positions of all sequences, got more"));
  }
  const int64_t want = std::min(max_pages_, std::max({int64_t{8}, 2 * have, need}));
  PACELINE_RETURN_IF_ERROR(storage_->Reserve(want * kPageSize));
  references_.resize(want, 0);
  std::vector<int32_t> added(want - have);  // The lowest is taken first.
  for (int64_t i = 0; i < want - have; ++i) added[i] = static_cast<int32_t>(want - 1 - i);
  free_pages_.insert(free_pages_.begin(), added.begin(), added.end());
  return absl::OkStatus();
}

int32_t KvCache::TakePage() {
  const int32_t page = free_pages_.back();
  free_pages_.pop_back();
  references_[page] = 1;
  return page;
}

void KvCache::DropPage(int32_t page) {
  if (--references_[page] == 0) free_pages_.push_back(page);
}

int64_t KvCache::CountShared(const Table& table, int64_t from, int64_t to) const {
  int64_t shared = 0;
  for (int64_t i = from / kPageSize; i < PagesFor(to); ++i) {
    if (references_[table.pages[i]] > 1) ++shared;
  }
  return shared;
}

void KvCache::MakePrivate(Table& table, int64_t from, int64_t to) {
  for (int64_t i = from / kPageSize; i < PagesFor(to); ++i) {
    const int32_t shared = table.pages[i];
    if (references_[shared] == 1) continue;
    const int32_t own = TakePage();
    std::vector<SlotCopy> copies;
    const auto used = std::min<int64_t>(kPageSize, table.length - i * kPageSize);
    for (int64_t place = 0; place < used; ++place) {
      copies.push_back({static_cast<int64_t>(shared) * kPageSize + place,
                        static_cast<int64_t>(own) * kPageSize + place});
    }
    storage_->Copy(copies);
    DropPage(shared);
    table.pages[i] = own;
  }
}

absl::StatusOr<std::vector<int64_t>> KvCache::Append(SequenceId sequence, int32_t count) {
  if (!IsLive(sequence)) return Unknown(sequence);
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("count: expected 0 or more, got ", count));
  }
  Table& table = tables_[sequence];
  const int64_t length = int64_t{table.length} + count;
  if (length > std::numeric_limits<int32_t>::max()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cache: expected a length of 31 bits, got ", length));
  }
  const auto num_pages = static_cast<int64_t>(table.pages.size());
  // Only the last page can hold both old entries and new ones.
  const int64_t shared_end = count > 0 ? table.length : 0;
  const int64_t num_new = PagesFor(length) - num_pages;
  PACELINE_RETURN_IF_ERROR(MakeFree(num_new + CountShared(table, table.length, shared_end)));
  MakePrivate(table, table.length, shared_end);
  for (int64_t i = 0; i < num_new; ++i) table.pages.push_back(TakePage());
  std::vector<int64_t> slots;
  for (; table.length < length; ++table.length) slots.push_back(Slot(table, table.length));
  return slots;
}

absl::Status KvCache::Truncate(SequenceId sequence, int32_t length) {
  if (!IsLive(sequence)) return Unknown(sequence);
  Table& table = tables_[sequence];
  if (length < 0 || length > table.length) {
    return absl::InvalidArgumentError(
        absl::StrCat("length: expected a number in [0, ", table.length, "], got ", length));
  }
  table.length = length;
  for (; static_cast<int64_t>(table.pages.size()) > PagesFor(length); table.pages.pop_back()) {
    DropPage(table.pages.back());
  }
  return absl::OkStatus();
}

absl::Status KvCache::Compact(SequenceId sequence, int32_t base, std::span<const int32_t> path) {
  if (!IsLive(sequence)) return Unknown(sequence);
  Table& table = tables_[sequence];
  if (base < 0 || base > table.length) {
    return absl::InvalidArgumentError(
        absl::StrCat("base: expected a number in [0, ", table.length, "], got ", base));
  }
  PACELINE_RETURN_IF_ERROR(CheckPath(path, table.length - base));
  size_t first = 0;  // Rows before it stay where they are.
  while (first < path.size() && path[first] == static_cast<int64_t>(first)) ++first;
  const auto length = static_cast<int32_t>(base + path.size());
  const int64_t written_from = base + static_cast<int64_t>(first);
  const int64_t written_to = first < path.size() ? length : 0;
  PACELINE_RETURN_IF_ERROR(MakeFree(CountShared(table, written_from, written_to)));
  MakePrivate(table, written_from, written_to);
  // A source lies at or behind its destination and rows are in order, so that an ascending copy
  // never overwrites what it has still to read.
  std::vector<SlotCopy> copies;
  for (size_t i = first; i < path.size(); ++i) {
    copies.push_back({Slot(table, base + path[i]), Slot(table, static_cast<int32_t>(base + i))});
  }
  if (!copies.empty()) storage_->Copy(copies);
  return Truncate(sequence, length);
}

std::vector<int64_t> KvCache::Slots(SequenceId sequence) const {
  std::vector<int64_t> slots;
  if (!IsLive(sequence)) return slots;
  const Table& table = tables_[sequence];
  for (int32_t i = 0; i < table.length; ++i) slots.push_back(Slot(table, i));
  return slots;
}

}  // namespace paceline
