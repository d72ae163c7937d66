#include "models/kv_cache.h"

#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::StatusIs;

constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kResourceExhausted = absl::StatusCode::kResourceExhausted;

// One number a slot, and a limit of its own.
class FakeStorage : public KvStorage {
 public:
  absl::Status Reserve(int64_t num_slots) override {
    if (num_slots > limit) return absl::ResourceExhaustedError("storage: full");
    EXPECT_GE(num_slots, static_cast<int64_t>(entries.size()));
    entries.resize(num_slots, -1);
    return absl::OkStatus();
  }
  void Copy(std::span<const SlotCopy> copies) override {
    std::set<int64_t> written;
    for (const SlotCopy& copy : copies) {
      EXPECT_FALSE(written.contains(copy.from)) << "slot " << copy.from << " read after written";
      entries.at(copy.to) = entries.at(copy.from);
      written.insert(copy.to);
    }
    num_copies += static_cast<int64_t>(copies.size());
  }

  std::vector<int> entries;
  int64_t limit = int64_t{1} << 40;
  int64_t num_copies = 0;
};

// A cache whose entries are numbers in the order in which they were written.
class KvCacheTest : public ::testing::Test {
 protected:
  // Appends and writes `count` new numbers.
  absl::Status Append(SequenceId sequence, int32_t count) {
    const auto slots = cache_.Append(sequence, count);
    if (!slots.ok()) return slots.status();
    EXPECT_EQ(static_cast<int32_t>(slots->size()), count);
    for (int64_t slot : *slots) storage_.entries.at(slot) = next_++;
    return absl::OkStatus();
  }

  std::vector<int> Entries(SequenceId sequence) const {
    std::vector<int> entries;
    for (int64_t slot : cache_.Slots(sequence)) entries.push_back(storage_.entries.at(slot));
    return entries;
  }

  // Pages that sequences hold, counted from their slots.
  int64_t PagesHeld(const std::vector<SequenceId>& sequences) const {
    std::set<int64_t> pages;
    for (SequenceId sequence : sequences) {
      for (int64_t slot : cache_.Slots(sequence)) pages.insert(slot / KvCache::kPageSize);
    }
    return static_cast<int64_t>(pages.size());
  }

  FakeStorage storage_;
  KvCache cache_{&storage_, 10 * KvCache::kPageSize};
  int next_ = 0;
};

TEST_F(KvCacheTest, AppendsAcrossPages) {
  const SequenceId sequence = cache_.Create();
  EXPECT_EQ(cache_.Length(sequence), 0);
  ASSERT_THAT(Append(sequence, 15), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 1);
  ASSERT_THAT(Append(sequence, 18), IsOk());
  ASSERT_THAT(Append(sequence, 0), IsOk());
  EXPECT_EQ(cache_.Length(sequence), 33);
  EXPECT_EQ(cache_.pages_in_use(), 3);
  const auto entries = Entries(sequence);
  ASSERT_EQ(entries.size(), 33);
  for (int i = 0; i < 33; ++i) EXPECT_EQ(entries[i], i);
}

TEST_F(KvCacheTest, TruncateFreesPages) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 40), IsOk());
  ASSERT_THAT(cache_.Truncate(sequence, 17), IsOk());
  EXPECT_EQ(cache_.Length(sequence), 17);
  EXPECT_EQ(cache_.pages_in_use(), 2);
  ASSERT_THAT(cache_.Truncate(sequence, 16), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 1);
  ASSERT_THAT(cache_.Truncate(sequence, 0), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 0);
  EXPECT_EQ(cache_.Length(sequence), 0);
}

TEST_F(KvCacheTest, ForkSharesPagesUntilOneWrites) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 20), IsOk());
  const auto before = Entries(sequence);
  const auto fork = cache_.Fork(sequence);
  ASSERT_THAT(fork, IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 2);
  EXPECT_EQ(Entries(*fork), before);
  ASSERT_THAT(Append(*fork, 1), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 3);  // Only the page written to was copied.
  EXPECT_EQ(storage_.num_copies, 4);
  EXPECT_EQ(Entries(sequence), before);
  ASSERT_THAT(Append(sequence, 1), IsOk());  // No longer shared.
  EXPECT_EQ(storage_.num_copies, 4);
  EXPECT_EQ(Entries(*fork).back(), 20);
  EXPECT_EQ(Entries(sequence).back(), 21);
}

TEST_F(KvCacheTest, ForkOfAWholePageNeedsNoCopy) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 16), IsOk());
  const auto fork = cache_.Fork(sequence);
  ASSERT_THAT(Append(*fork, 1), IsOk());
  EXPECT_EQ(storage_.num_copies, 0);
  EXPECT_EQ(cache_.pages_in_use(), 2);
}

TEST_F(KvCacheTest, ReleasedIdsAreUsedAgainAndEmpty) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 20), IsOk());
  const auto fork = cache_.Fork(sequence);
  ASSERT_THAT(cache_.Release(sequence), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 2);  // The fork's.
  EXPECT_EQ(cache_.Create(), sequence);
  EXPECT_EQ(cache_.Length(sequence), 0);
  EXPECT_EQ(Entries(*fork).size(), 20);
  ASSERT_THAT(cache_.Release(*fork), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 0);
}

TEST_F(KvCacheTest, CompactKeepsThePath) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 14), IsOk());
  ASSERT_THAT(Append(sequence, 6), IsOk());
  ASSERT_THAT(cache_.Compact(sequence, 14, std::vector<int32_t>{0, 2, 5}), IsOk());
  EXPECT_EQ(cache_.Length(sequence), 17);
  EXPECT_EQ(storage_.num_copies, 2);
  const auto entries = Entries(sequence);
  EXPECT_THAT((std::vector<int>(entries.begin() + 13, entries.end())), ElementsAre(13, 14, 16, 19));
}

TEST_F(KvCacheTest, CompactOfNothingIsTruncation) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 20), IsOk());
  ASSERT_THAT(cache_.Compact(sequence, 4, {}), IsOk());
  EXPECT_EQ(cache_.Length(sequence), 4);
  EXPECT_EQ(cache_.pages_in_use(), 1);
  EXPECT_EQ(storage_.num_copies, 0);
}

TEST_F(KvCacheTest, CompactOfASharedPageLeavesTheOtherAlone) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 20), IsOk());
  const auto fork = cache_.Fork(sequence);
  const auto before = Entries(*fork);
  ASSERT_THAT(cache_.Compact(sequence, 10, std::vector<int32_t>{3, 9}), IsOk());
  EXPECT_EQ(Entries(*fork), before);
  const auto entries = Entries(sequence);
  ASSERT_EQ(entries.size(), 12);
  EXPECT_EQ(entries[10], 13);
  EXPECT_EQ(entries[11], 19);
}

TEST_F(KvCacheTest, CompactOfAStraightPathCopiesNothingThoughShared) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 20), IsOk());
  ASSERT_THAT(cache_.Fork(sequence), IsOk());
  ASSERT_THAT(cache_.Compact(sequence, 10, std::vector<int32_t>{0, 1, 2}), IsOk());
  EXPECT_EQ(cache_.Length(sequence), 13);
  EXPECT_EQ(storage_.num_copies, 0);
}

// BR-26: 6 committed, 5 cached, 3 drafted; the pass appends the last token and the drafts.
TEST_F(KvCacheTest, AfterARoundAllButTheNewestTokenIsCached) {
  for (const auto& [num_accepted, cached] : {std::pair{3, 9}, {1, 7}, {0, 6}}) {
    const SequenceId sequence = cache_.Create();
    ASSERT_THAT(Append(sequence, 5), IsOk());
    ASSERT_THAT(Append(sequence, 4), IsOk());
    std::vector<int32_t> path;
    for (int32_t row = 0; row <= num_accepted; ++row) path.push_back(row);
    ASSERT_THAT(cache_.Compact(sequence, 5, path), IsOk());
    EXPECT_EQ(cache_.Length(sequence), cached);
    ASSERT_THAT(cache_.Release(sequence), IsOk());
  }
  EXPECT_EQ(cache_.pages_in_use(), 0);
}

TEST_F(KvCacheTest, FullCacheRefusesAndChangesNothing) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 150), IsOk());  // 10 of 10 pages.
  const auto fork = cache_.Fork(sequence);
  const auto slots = cache_.Slots(*fork);
  for (int32_t count : {1, 11, 1000, std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(cache_.Append(*fork, count), StatusIs(kResourceExhausted, HasSubstr("cache: ")));
  }
  EXPECT_THAT(cache_.Compact(*fork, 140, std::vector<int32_t>{1}),
              StatusIs(kResourceExhausted, HasSubstr("cache: ")));
  EXPECT_EQ(cache_.Slots(*fork), slots);
  EXPECT_EQ(cache_.Slots(sequence), slots);
  EXPECT_EQ(cache_.pages_in_use(), 10);
  EXPECT_EQ(storage_.num_copies, 0);
  ASSERT_THAT(cache_.Release(sequence), IsOk());
  EXPECT_THAT(Append(*fork, 10), IsOk());
}

// A page for the copy there is, but none for what follows.
TEST_F(KvCacheTest, AppendThatFailsHalfWayChangesNothing) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 8 * 16 + 4), IsOk());
  const auto fork = cache_.Fork(sequence);
  const auto slots = cache_.Slots(*fork);
  EXPECT_THAT(cache_.Append(*fork, 13), StatusIs(kResourceExhausted, HasSubstr("cache: ")));
  EXPECT_EQ(cache_.Slots(*fork), slots);
  EXPECT_EQ(cache_.pages_in_use(), 9);
  EXPECT_THAT(Append(*fork, 12), IsOk());
  EXPECT_EQ(cache_.pages_in_use(), 10);
}

TEST_F(KvCacheTest, StorageThatCannotGrowRefusesAndChangesNothing) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 100), IsOk());
  storage_.limit = static_cast<int64_t>(storage_.entries.size());
  const auto slots = cache_.Slots(sequence);
  EXPECT_THAT(cache_.Append(sequence, 50), StatusIs(kResourceExhausted, "storage: full"));
  EXPECT_EQ(cache_.Slots(sequence), slots);
  EXPECT_EQ(cache_.pages_in_use(), 7);
  EXPECT_THAT(Append(sequence, 28), IsOk());
}

TEST_F(KvCacheTest, UnknownSequencesAreNamed) {
  const SequenceId released = cache_.Create();
  ASSERT_THAT(cache_.Release(released), IsOk());
  for (SequenceId id : {released, -1, 1, std::numeric_limits<SequenceId>::max()}) {
    const auto unknown = StatusIs(kInvalidArgument, HasSubstr("got " + std::to_string(id)));
    EXPECT_THAT(cache_.Append(id, 1), unknown);
    EXPECT_THAT(cache_.Fork(id), unknown);
    EXPECT_THAT(cache_.Release(id), unknown);
    EXPECT_THAT(cache_.Truncate(id, 0), unknown);
    EXPECT_THAT(cache_.Compact(id, 0, {}), unknown);
    EXPECT_EQ(cache_.Length(id), -1);
    EXPECT_THAT(cache_.Slots(id), IsEmpty());
  }
}

TEST_F(KvCacheTest, WrongArgumentsAreNamedAndChangeNothing) {
  const SequenceId sequence = cache_.Create();
  ASSERT_THAT(Append(sequence, 8), IsOk());
  EXPECT_THAT(cache_.Append(sequence, -1), StatusIs(kInvalidArgument, HasSubstr("count: ")));
  EXPECT_THAT(cache_.Truncate(sequence, -1), StatusIs(kInvalidArgument, HasSubstr("length: ")));
  EXPECT_THAT(cache_.Truncate(sequence, 9), StatusIs(kInvalidArgument, HasSubstr("length: ")));
  EXPECT_THAT(cache_.Compact(sequence, -1, {}), StatusIs(kInvalidArgument, HasSubstr("base: ")));
  EXPECT_THAT(cache_.Compact(sequence, 9, {}), StatusIs(kInvalidArgument, HasSubstr("base: ")));
  for (const std::vector<int32_t>& path : std::vector<std::vector<int32_t>>{
           {4}, {-1}, {1, 1}, {2, 1}, {0, 1, 2, 3, 4}, {std::numeric_limits<int32_t>::max()}}) {
    EXPECT_THAT(cache_.Compact(sequence, 4, path), StatusIs(kInvalidArgument, HasSubstr("path[")));
  }
  EXPECT_THAT(Entries(sequence), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Random operations on a cache and on plain vectors: the same entries after every one.
class RandomKvCacheTest : public KvCacheTest {
 protected:
  using Model = std::map<SequenceId, std::vector<int>>;

  void Grow(Model::value_type& entry) {
    const auto count = static_cast<int32_t>(random_() % 40);
    const int first = next_;
    const absl::Status status = Append(entry.first, count);
    if (!status.ok()) {
      EXPECT_THAT(status, StatusIs(kResourceExhausted, HasSubstr("cache")));
      return;
    }
    for (int i = 0; i < count; ++i) entry.second.push_back(first + i);
  }

  void Shorten(Model::value_type& entry) {
    const size_t length = random_() % (entry.second.size() + 1);
    EXPECT_THAT(cache_.Truncate(entry.first, static_cast<int32_t>(length)), IsOk());
    entry.second.resize(length);
  }

  void Compact(Model::value_type& entry) {
    const size_t base = random_() % (entry.second.size() + 1);
    std::vector<int32_t> path;
    std::vector<int> kept(entry.second.begin(), entry.second.begin() + base);
    for (size_t row = 0; row < entry.second.size() - base; ++row) {
      if (random_() % 3 == 0) continue;
      path.push_back(static_cast<int32_t>(row));
      kept.push_back(entry.second[base + row]);
    }
    const absl::Status status = cache_.Compact(entry.first, static_cast<int32_t>(base), path);
    if (status.ok()) {
      entry.second = kept;
    } else {
      EXPECT_THAT(status, StatusIs(kResourceExhausted, HasSubstr("cache")));
    }
  }

  void Step(Model& model) {
    if (model.empty() || (random_() % 8 == 0 && model.size() < 6)) {
      model[cache_.Create()] = {};
      return;
    }
    auto& entry = *std::next(model.begin(), random_() % model.size());
    switch (random_() % 8) {
      case 0:
        if (model.size() < 6) {
          const auto fork = cache_.Fork(entry.first);
          ASSERT_THAT(fork, IsOk());
          model[*fork] = std::vector<int>(entry.second);
        }
        break;
      case 1:
        EXPECT_THAT(cache_.Release(entry.first), IsOk());
        model.erase(entry.first);
        break;
      case 2:
        Shorten(entry);
        break;
      case 3:
      case 4:
        Compact(entry);
        break;
      default:
        Grow(entry);
        break;
    }
  }

  void Compare(const Model& model) {
    std::vector<SequenceId> sequences;
    for (const auto& [sequence, entries] : model) {
      sequences.push_back(sequence);
      ASSERT_EQ(cache_.Length(sequence), static_cast<int32_t>(entries.size()));
      ASSERT_EQ(Entries(sequence), entries);
    }
    ASSERT_EQ(cache_.pages_in_use(), PagesHeld(sequences));
  }

  std::mt19937 random_;
};

TEST_F(RandomKvCacheTest, AgreesWithPlainVectors) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    Model model;
    for (int step = 0; step < 100 && !HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Step(model);
      Compare(model);
    }
    for (const auto& [sequence, entries] : model) ASSERT_THAT(cache_.Release(sequence), IsOk());
    ASSERT_EQ(cache_.pages_in_use(), 0);
    ASSERT_LE(cache_.pages_reserved(), 10);
  }
}

}  // namespace
}  // namespace paceline
