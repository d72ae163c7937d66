// Paged key-value cache: which slot holds which position of which sequence.
//
// The cache keeps tables only. Keys and values lie in a storage that the model owns and that is
// addressed by slot = page * kPageSize + place; KvStorage is the narrow interface to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paceline {

using SequenceId = int32_t;

struct SlotCopy {
  int64_t from;
  int64_t to;
};

// Memory behind the slots. Implemented by each engine (and by test models).
class KvStorage {
 public:
  virtual ~KvStorage() = default;
  // Makes room for `num_slots` slots, keeping what the present ones hold.
  // Errors: kResourceExhausted.
  virtual absl::Status Reserve(int64_t num_slots) = 0;
  // Copies entries in the order given; a source is never overwritten before it is read.
  virtual void Copy(std::span<const SlotCopy> copies) = 0;
};

// Sequences over shared pages. Pages are reference-counted: Fork shares them, writing to a shared
// page copies it first. Not thread-safe.
class KvCache {
 public:
  static constexpr int32_t kPageSize = 16;

  // `storage` must outlive the cache. `max_positions` bounds all sequences together.
  KvCache(KvStorage* storage, int64_t max_positions);

  // An empty sequence.
  SequenceId Create();
  // A sequence with the same entries; shares pages until one of the two writes. O(pages).
  absl::StatusOr<SequenceId> Fork(SequenceId sequence);
  // Gives the pages back; the id may be used again. Unknown ids are kInvalidArgument.
  absl::Status Release(SequenceId sequence);

  // Cached positions; -1 for an unknown sequence.
  int32_t Length(SequenceId sequence) const;

  // Room for `count` more entries; returns their slots in order. Length grows by `count`.
  // Errors: kResourceExhausted (nothing changed), kInvalidArgument.
  absl::StatusOr<std::vector<int64_t>> Append(SequenceId sequence, int32_t count);

  // Keeps the first `length` entries. Errors: kInvalidArgument if length is not in [0, Length].
  absl::Status Truncate(SequenceId sequence, int32_t length);

  // After a tree of rows was appended behind `base` entries: keeps the rows `path` (ascending
  // indices into those rows), moved to positions base, base + 1, ...; drops the rest.
  // Errors: kInvalidArgument if `path` is not ascending or not within the appended rows;
  // kResourceExhausted if a shared page cannot be copied (nothing changed).
  absl::Status Compact(SequenceId sequence, int32_t base, std::span<const int32_t> path);

  // Slots of all cached positions, in order.
  std::vector<int64_t> Slots(SequenceId sequence) const;

  // Pages in use and pages ever reserved, for tests of leaks and for reports.
  int64_t pages_in_use() const;
  int64_t pages_reserved() const { return static_cast<int64_t>(references_.size()); }

 private:
  struct Table {
    bool live = false;
    int32_t length = 0;
    std::vector<int32_t> pages;
  };

  bool IsLive(SequenceId sequence) const;
  // Enlarges the storage until `count` pages are free.
  absl::Status MakeFree(int64_t count);
  int32_t TakePage();  // There must be a free one.
  void DropPage(int32_t page);
  // Shared pages among those that hold positions [from, to).
  int64_t CountShared(const Table& table, int64_t from, int64_t to) const;
  // Makes these pages the sequence's own. There must be a free page for each shared one.
  void MakePrivate(Table& table, int64_t from, int64_t to);
  int64_t Slot(const Table& table, int32_t position) const;

  KvStorage* storage_;
  int64_t max_pages_;
  std::vector<int32_t> references_;  // per page
  std::vector<int32_t> free_pages_;
  std::vector<Table> tables_;
};

}  // namespace paceline
