#include "sampling/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

using Ranking = std::vector<std::pair<int32_t, double>>;

// Values in steps of 1/8, so that many tie; every fifth is masked.
template <typename Real>
std::vector<Real> TiedLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<Real> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    const bool masked = u < 0.2 && vocab_size > 1;
    logits.push_back(masked ? -std::numeric_limits<Real>::infinity()
                            : static_cast<Real>(std::floor(u * 100) / 8));
  }
  return logits;
}

template <typename Real>
Ranking FullSort(const std::vector<Real>& logits) {
  Ranking ranking;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -std::numeric_limits<Real>::infinity()) ranking.emplace_back(id, logits[id]);
  }
  std::sort(ranking.begin(), ranking.end(), [](const auto& a, const auto& b) {
    return a.second > b.second || (a.second == b.second && a.first < b.first);
  });
  return ranking;
}

template <typename Entry>
Ranking Copy(std::span<const Entry> entries) {
  Ranking ranking;
  for (const Entry& entry : entries) ranking.emplace_back(entry.id, entry.logit);
  return ranking;
}

Ranking First(const Ranking& ranking, int64_t count) {
  return {ranking.begin(), ranking.begin() + std::min<int64_t>(count, ranking.size())};
}

template <typename Entry>
std::vector<int32_t> SortedIds(std::span<const Entry> entries) {
  std::vector<int32_t> ids;
  for (const Entry& entry : entries) ids.push_back(entry.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

template <typename Real>
Candidates<Real> Assigned(const std::vector<Real>& logits) {
  Candidates<Real> candidates;
  EXPECT_THAT(candidates.Assign(std::span<const Real>(logits), static_cast<int32_t>(logits.size())),
              IsOk());
  return candidates;
}

template <typename Real>
class CandidatesTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CandidatesTest, Reals);

TYPED_TEST(CandidatesTest, RankedAgreesWithAFullSort) {
  for (int32_t vocab_size : {1, 3, 111, 49152}) {
    for (uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE("V " + std::to_string(vocab_size) + ", seed " + std::to_string(seed));
      const auto logits = TiedLogits<TypeParam>(vocab_size, seed);
      const Ranking sorted = FullSort(logits);
      for (int64_t count : {int64_t{1}, int64_t{2}, int64_t{64}, int64_t{65}, int64_t{1000},
                            int64_t{vocab_size}, int64_t{vocab_size} + 5}) {
        auto candidates = Assigned(logits);
        EXPECT_EQ(Copy(candidates.Ranked(count)), First(sorted, count)) << "count " << count;
      }
    }
  }
}

// By the definition: a full sort, and the mass before each token.
template <typename Real>
std::vector<int32_t> KeptByMass(const Ranking& sorted, Real max,
                                const typename Candidates<Real>::MassLimit& limit, int64_t min_keep) {
  std::vector<int32_t> kept;
  double before = 0;
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (!limit.with_ties || i == 0 || sorted[i].second != sorted[i - 1].second) before = sum;
    const bool below = limit.inclusive ? before <= limit.mass : before < limit.mass;
    if (!below && static_cast<int64_t>(i) >= min_keep) break;
    kept.push_back(sorted[i].first);
    sum += std::exp(static_cast<Real>(sorted[i].second) - max);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TYPED_TEST(CandidatesTest, KeepMassKeepsWhatTheDefinitionKeeps) {
  for (const int32_t vocab_size : {1, 5, 111, 4099, 49152}) {
    for (const double share : {0.0, 0.1, 0.5, 0.9, 0.999, 0.9999999}) {
      for (const int64_t top_k : {0, 40}) {
        for (const int mode : {0, 1, 2, 3}) {
          SCOPED_TRACE(::testing::PrintToString(std::tuple(vocab_size, share, top_k, mode)));
          const auto logits = TiedLogits<TypeParam>(vocab_size, 6);
          auto candidates = Assigned(logits);
          Ranking sorted = FullSort(logits);
          if (top_k > 0) {
            candidates.KeepRanked(top_k);
            sorted = First(sorted, top_k);
          }
          // Off the sums that tokens reach, whose last bits depend on the order of summation.
          const typename Candidates<TypeParam>::MassLimit limit{
              (share + 1e-9) * candidates.Mass(), mode % 2 == 1, mode >= 2};
          const int64_t min_keep = mode % 2 == 0 ? 1 : 3;
          const auto expected = KeptByMass(sorted, candidates.Max(), limit, min_keep);
          candidates.KeepMass(limit, min_keep);
          EXPECT_EQ(SortedIds(candidates.Ranked(vocab_size)), expected);
        }
      }
    }
  }
}

// Rows whose large values all lie where every n-th is looked at, or never there: a guess from these
// is far off, the ranks are not.
TYPED_TEST(CandidatesTest, RankedAgreesWhereSamplesMislead) {
  constexpr int32_t kVocab = 49152;
  for (const int32_t place : {0, 1}) {
    std::vector<TypeParam> logits(kVocab, -3);
    for (int32_t id = place; id < kVocab; id += 48) logits[id] = static_cast<TypeParam>(id % 96);
    const Ranking sorted = FullSort(logits);
    for (int64_t count : {1, 64, 600, 20000}) {
      auto candidates = Assigned(logits);
      EXPECT_EQ(Copy(candidates.Ranked(count)), First(sorted, count)) << place << ", " << count;
    }
  }
}

// Also where the row has just as many large values as are asked for.
TYPED_TEST(CandidatesTest, MassIsThatOfWhatWasKept) {
  std::vector<TypeParam> logits(49152, 0);
  for (int32_t i = 0; i < 64; ++i) logits[i * 48] = 2;
  auto candidates = Assigned(logits);
  EXPECT_NEAR(candidates.Mass(), 64 + (49152 - 64) * std::exp(-2.0), 1e-2);
  candidates.KeepRanked(64);
  EXPECT_EQ(candidates.NumSurvivors(), 64);
  EXPECT_NEAR(candidates.Mass(), 64, 1e-9);
}

// Ranks are those of the row as it is: an edit after a look counts.
TYPED_TEST(CandidatesTest, EditsAfterALookChangeTheRanks) {
  std::vector<TypeParam> logits = TiedLogits<TypeParam>(49152, 5);
  auto candidates = Assigned(logits);
  candidates.Ranked(10);
  const int32_t best = candidates.Ranked(1).front().id;
  candidates.SetLogit(best, -100);
  logits[best] = -100;
  EXPECT_EQ(Copy(candidates.Ranked(100)), First(FullSort(logits), 100));
  candidates.Temper(0.5);
  const Ranking tempered = Copy(candidates.Ranked(100));
  const Ranking sorted = FullSort(logits);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(tempered[i].first, sorted[i].first);
}

TYPED_TEST(CandidatesTest, RankedPartGrows) {
  const auto logits = TiedLogits<TypeParam>(49152, 4);
  const Ranking sorted = FullSort(logits);
  auto candidates = Assigned(logits);
  for (int64_t count : {1, 3, 64, 70, 128, 129, 5000, 49152}) {
    EXPECT_EQ(Copy(candidates.Ranked(count)), First(sorted, count)) << "seed 4, count " << count;
  }
}

TYPED_TEST(CandidatesTest, KeepRankedKeepsTheFirst) {
  for (int32_t vocab_size : {1, 3, 111, 49152}) {
    const auto logits = TiedLogits<TypeParam>(vocab_size, 5);
    const Ranking sorted = FullSort(logits);
    for (int64_t count : {1, 2, 40, 100, 60000}) {
      auto candidates = Assigned(logits);
      candidates.KeepRanked(count);
      const Ranking expected = First(sorted, count);
      EXPECT_EQ(candidates.NumSurvivors(), static_cast<int64_t>(expected.size()));
      EXPECT_EQ(Copy(candidates.Ranked(vocab_size)), expected)
          << "seed 5, V " << vocab_size << ", count " << count;
    }
  }
}

// Filtered or not, ranked or not, the same tokens stay.
TYPED_TEST(CandidatesTest, KeepAtLeastKeepsTheThreshold) {
  for (int32_t vocab_size : {3, 111, 49152}) {
    const auto logits = TiedLogits<TypeParam>(vocab_size, 6);
    const Ranking sorted = FullSort(logits);
    for (TypeParam threshold : {TypeParam{-1}, TypeParam{5}, TypeParam{12}, TypeParam{99}}) {
      for (int64_t min_keep : {1, 3, 200}) {
        const int64_t above = std::count_if(sorted.begin(), sorted.end(), [&](const auto& entry) {
          return entry.second >= threshold;
        });
        const Ranking expected = First(sorted, std::max(above, min_keep));
        for (int64_t ranked_before : {-1, 0, 1, 64, 500}) {
          auto candidates = Assigned(logits);
          if (ranked_before >= 0) candidates.Ranked(ranked_before);
          candidates.KeepAtLeast(threshold, min_keep);
          EXPECT_EQ(Copy(candidates.Ranked(vocab_size)), expected)
              << "seed 6, V " << vocab_size << ", threshold " << threshold << ", min_keep "
              << min_keep << ", ranked before " << ranked_before;
        }
      }
    }
  }
}

TYPED_TEST(CandidatesTest, FiltersInSequenceKeepTheRankOrder) {
  const auto logits = TiedLogits<TypeParam>(111, 7);
  const Ranking sorted = FullSort(logits);
  auto candidates = Assigned(logits);
  candidates.KeepRanked(50);
  candidates.KeepAtLeast(static_cast<TypeParam>(sorted[30].second), 1);
  candidates.KeepRanked(20);
  EXPECT_EQ(Copy(candidates.Ranked(111)), First(sorted, 20)) << "seed 7";
}

TYPED_TEST(CandidatesTest, MaxAndMassFollowEveryChange) {
  auto candidates = Assigned(std::vector<TypeParam>{0, 2, 1, 2});
  const double e = std::exp(1.0);
  EXPECT_EQ(candidates.Max(), 2);
  EXPECT_NEAR(candidates.Mass(), 2 + 1 / e + 1 / (e * e), 1e-6);
  candidates.SetLogit(3, 1);
  EXPECT_NEAR(candidates.Mass(), 1 + 2 / e + 1 / (e * e), 1e-6);
  candidates.KeepRanked(3);
  EXPECT_NEAR(candidates.Mass(), 1 + 2 / e, 1e-6);
  candidates.KeepAtLeast(2, 1);
  EXPECT_NEAR(candidates.Mass(), 1, 1e-6);
  EXPECT_EQ(candidates.NumSurvivors(), 1);
}

TYPED_TEST(CandidatesTest, TemperShiftsTheMaximumToZero) {
  auto dense = Assigned(std::vector<TypeParam>{1, 3, -5});
  dense.Temper(0.5);
  EXPECT_EQ(dense.logit(0), -4);
  EXPECT_EQ(dense.logit(1), 0);
  EXPECT_EQ(dense.logit(2), -16);
  auto filtered = Assigned(std::vector<TypeParam>{1, 3, -5});
  filtered.KeepRanked(2);
  filtered.Temper(2);
  EXPECT_EQ(Copy(filtered.Ranked(2)), (Ranking{{1, 0}, {0, -1}}));
}

// Logits that tempering makes equal rank by id, also where they were ranked before it.
TYPED_TEST(CandidatesTest, TemperedTiesRankById) {
  const TypeParam above = std::nextafter(TypeParam{1}, TypeParam{2});
  auto candidates = Assigned(std::vector<TypeParam>{1, above, 1, above});
  candidates.Ranked(4);
  candidates.Temper(std::numeric_limits<TypeParam>::max());
  std::vector<int32_t> ids;
  for (const auto& entry : candidates.Ranked(4)) ids.push_back(entry.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 1, 2, 3}));
}

TYPED_TEST(CandidatesTest, AllMaskedHasNoMass) {
  const auto masked = -std::numeric_limits<TypeParam>::infinity();
  auto candidates = Assigned(std::vector<TypeParam>{masked, masked});
  EXPECT_EQ(candidates.Max(), masked);
  EXPECT_EQ(candidates.Mass(), 0);
  EXPECT_EQ(candidates.NumSurvivors(), 0);
  candidates.Temper(0.5);
  EXPECT_TRUE(candidates.Ranked(2).empty());
  candidates.KeepAtLeast(0, 1);
  EXPECT_TRUE(candidates.survivors().empty());
}

TEST(CandidatesFloatTest, AssignForgetsTheLastRow) {
  Candidates<float> candidates;
  const std::vector<float> wide = {1, 2, 3, 4, 5};
  ASSERT_THAT(candidates.Assign(std::span<const float>(wide), 5), IsOk());
  candidates.KeepRanked(2);
  const std::vector<float> narrow = {7, 6};
  ASSERT_THAT(candidates.Assign(std::span<const float>(narrow), 2), IsOk());
  EXPECT_FALSE(candidates.filtered());
  EXPECT_EQ(candidates.Max(), 7);
  EXPECT_EQ(Copy(candidates.Ranked(9)), (Ranking{{0, 7}, {1, 6}}));
}

TEST(CandidatesFloatTest, PaddingNeverComes) {
  Candidates<float> candidates;
  const std::vector<float> padded = {1, 2, 9, std::numeric_limits<float>::quiet_NaN()};
  ASSERT_THAT(candidates.Assign(std::span<const float>(padded), 2), IsOk());
  EXPECT_EQ(candidates.Max(), 2);
  candidates.Ranked(4);
  EXPECT_EQ(SortedIds(candidates.survivors()), (std::vector<int32_t>{0, 1}));
}

TEST(CandidatesFloatTest, UnsoundRowsAreRefused) {
  Candidates<float> candidates;
  const auto assign = [&](std::vector<float> row, int32_t vocab_size) {
    return candidates.Assign(std::span<const float>(row), vocab_size);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(assign({0, 1, nan}, 3),
              StatusIs(kInvalid, AllOf(StartsWith("nan_logit"), HasSubstr("logits[2]"))));
  EXPECT_THAT(assign({0, -kMasked, nan}, 3),
              StatusIs(kInvalid, AllOf(StartsWith("inf_logit"), HasSubstr("logits[1]"))));
  EXPECT_THAT(assign({0, 1}, 3), StatusIs(kInvalid, HasSubstr("vocab_size = 3 entries, got 2")));
  EXPECT_THAT(assign({0, 1}, 0), StatusIs(kInvalid, HasSubstr("vocab_size = 0")));
  EXPECT_THAT(assign({kMasked, 1}, 2), IsOk());
}

}  // namespace
}  // namespace paceline
