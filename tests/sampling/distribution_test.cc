#include "sampling/distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "base/philox.h"
#include "sampling/draw.h"
#include "tests/support/chi_square.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

constexpr double kJustBelowOne = 1 - 0x1p-53;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A row of `vocab_size` logits in [-4, 4].
std::vector<float> RandomLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<float> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    logits.push_back(
        static_cast<float>(8 * TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id)) - 4));
  }
  return logits;
}

// The softmax of the `keep` most likely tokens (0: of all, dense).
template <typename Real>
Distribution<Real> SoftmaxOf(const std::vector<float>& logits, int64_t keep) {
  Candidates<Real> candidates;
  EXPECT_THAT(
      candidates.Assign(std::span<const float>(logits), static_cast<int32_t>(logits.size())),
      IsOk());
  if (keep > 0) candidates.KeepRanked(keep);
  Distribution<Real> row;
  EXPECT_THAT(row.AssignSoftmax(candidates), IsOk());
  return row;
}

template <typename Real>
Distribution<Real> RowOf(const std::vector<Real>& probs) {
  auto row = Distribution<Real>::FromProbs(probs);
  EXPECT_THAT(row, IsOk());
  return *std::move(row);
}

template <typename Real>
class DistributionTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DistributionTest, Reals);

TYPED_TEST(DistributionTest, SoftmaxSumsToOne) {
  for (int32_t vocab_size : {1, 3, 111, 49152}) {
    for (int64_t keep : {0, 1, 40}) {
      const auto row = SoftmaxOf<TypeParam>(RandomLogits(vocab_size, 3), keep);
      double sum = 0;
      for (TypeParam prob : row.probs()) sum += prob;
      EXPECT_NEAR(sum, 1, 1e-6) << "seed 3, V " << vocab_size << ", keep " << keep;
      EXPECT_EQ(row.vocab_size(), vocab_size);
      EXPECT_EQ(row.ids().empty(), keep == 0);
    }
  }
}

TYPED_TEST(DistributionTest, SparseRowHasAscendingIds) {
  const auto row = SoftmaxOf<TypeParam>({1, 5, 3, 4, 2}, 3);
  EXPECT_THAT(row.ids(), ElementsAre(1, 2, 3));
  EXPECT_EQ(row.Argmax(), 1);
  EXPECT_EQ(row.NumSurvivors(), 3);
  EXPECT_EQ(row.Prob(0), 0);
  EXPECT_GT(row.Prob(3), row.Prob(2));
  EXPECT_EQ(row.Prob(-1), 0);
  EXPECT_EQ(row.Prob(5), 0);
}

TYPED_TEST(DistributionTest, AllMaskedHasNoRow) {
  Candidates<TypeParam> candidates;
  const std::vector<float> masked(3, -std::numeric_limits<float>::infinity());
  ASSERT_THAT(candidates.Assign(std::span<const float>(masked), 3), IsOk());
  EXPECT_THAT(
      Distribution<TypeParam>().AssignSoftmax(candidates),
      StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::StartsWith("no_token_left")));
}

TYPED_TEST(DistributionTest, OneHotIsDrawnForEveryUniform) {
  const auto row = Distribution<TypeParam>::OneHot(7, 10);
  for (double u : {0.0, 0.5, kJustBelowOne}) EXPECT_EQ(row.Draw(u), 7);
  EXPECT_EQ(row.Argmax(), 7);
  EXPECT_EQ(row.EntropyBits(), 0);
  EXPECT_EQ(row.Dense()[7], 1);
  EXPECT_EQ(row.NumSurvivors(), 1);
}

TYPED_TEST(DistributionTest, DrawCutsAtTheRunningSum) {
  const auto row = RowOf<TypeParam>({0, 0.25, 0.5, 0, 0.25, 0});
  const std::map<double, int32_t> expected = {
      {0.0, 1},  {0.25 - 0x1p-54, 1}, {0.25, 2},         {0.75 - 0x1p-53, 2},
      {0.75, 4}, {0.999, 4},          {kJustBelowOne, 4}};
  for (const auto& [u, token] : expected) EXPECT_EQ(row.Draw(u), token) << "u " << u;
}

TYPED_TEST(DistributionTest, ZeroWeightIsNeverDrawn) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<TypeParam> weights;
    for (uint32_t id = 0; id < 37; ++id) {
      const double u = TokenUniform({seed, 0}, {}, id);
      weights.push_back(u < 0.6 ? 0 : static_cast<TypeParam>(u));
    }
    for (uint32_t i = 0; i < 2000; ++i) {
      const double u = i == 0 ? 0.0 : i == 1 ? kJustBelowOne : Uniform({seed, 1}, {i});
      const int64_t index = InverseCdf(std::span<const TypeParam>(weights), u);
      ASSERT_GE(index, 0) << "seed " << seed;
      ASSERT_GT(weights[index], 0) << "seed " << seed << ", u " << u;
    }
  }
}

TYPED_TEST(DistributionTest, NoPositiveWeightGivesNoIndex) {
  EXPECT_EQ(InverseCdf(std::span<const TypeParam>(), 0.5), -1);
  EXPECT_EQ(InverseCdf(std::span<const TypeParam>(std::vector<TypeParam>{0, 0}), 0.5), -1);
}

TYPED_TEST(DistributionTest, ArgmaxTakesTheLowestId) {
  EXPECT_EQ(RowOf<TypeParam>({0.125, 0.375, 0.125, 0.375}).Argmax(), 1);
}

// Fails one seed in 1,000.
TEST(DistributionFloatTest, DrawFollowsTheRow) {
  constexpr int kDraws = 1000000;
  for (int64_t keep : {0, 12}) {
    const auto row = SoftmaxOf<float>(RandomLogits(40, 17), keep);
    std::map<int32_t, double> law;
    std::map<int32_t, int64_t> counts;
    double total = 0;
    for (float prob : row.probs()) total += prob;
    for (size_t i = 0; i < row.probs().size(); ++i) law[row.IdAt(i)] = row.probs()[i] / total;
    for (uint32_t i = 0; i < kDraws; ++i) ++counts[row.Draw(Uniform({23, 0}, {i}))];
    EXPECT_GT(testing::ChiSquareTest(counts, law).p_value, 1e-3) << "seed 23, keep " << keep;
  }
}

// Fails one seed in 1,000.
TEST(DistributionFloatTest, GumbelDrawFollowsTheWeights) {
  const std::vector<double> weights = {0.5, 0, 0.25, 0.125, 1.0};
  std::map<int32_t, double> law = {
      {0, 0.5 / 1.875}, {2, 0.25 / 1.875}, {3, 0.125 / 1.875}, {4, 1 / 1.875}};
  std::map<int32_t, int64_t> counts;
  for (uint32_t i = 0; i < 100000; ++i) {
    std::vector<double> uniforms;
    for (uint32_t id = 0; id < weights.size(); ++id) {
      uniforms.push_back(TokenUniform({29, 0}, {i}, id));
    }
    const auto token = DrawGumbel(weights, uniforms);
    ASSERT_THAT(token, IsOk());
    ++counts[*token];
  }
  EXPECT_GT(testing::ChiSquareTest(counts, law).p_value, 1e-3) << "seed 29";
}

TEST(DistributionFloatTest, DrawRoutinesRefuseUnsoundData) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  using Row = std::vector<double>;
  EXPECT_THAT(DrawToken(Row{1, 1}, nan), StatusIs(kInvalid, HasSubstr("u: expected")));
  EXPECT_THAT(DrawToken(Row{1, 1}, -0.1), StatusIs(kInvalid, HasSubstr("u: expected")));
  EXPECT_THAT(DrawToken(Row{1, -1}, 0.5), StatusIs(kInvalid, HasSubstr("weights[1]")));
  EXPECT_THAT(DrawToken(Row{nan, 1}, 0.5), StatusIs(kInvalid, HasSubstr("weights[0]")));
  EXPECT_THAT(DrawToken(Row{0, 0}, 0.5),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no_token_left")));
  EXPECT_THAT(DrawGumbel(Row{1, 1}, Row{0.5}), StatusIs(kInvalid, HasSubstr("expected 2")));
  EXPECT_THAT(DrawGumbel(Row{1, 1}, Row{0.5, 1}), StatusIs(kInvalid, HasSubstr("uniforms[1]")));
  EXPECT_THAT(DrawGumbel(Row{0, 0}, Row{0.5, 0.5}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no_token_left")));
}

TEST(DistributionFloatTest, ProbsThatWereNotWarpedAreRefused) {
  using Row = std::vector<float>;
  const auto from = [](const Row& row) { return Distribution<float>::FromProbs(row).status(); };
  EXPECT_THAT(from({2, 1, 0}), StatusIs(kInvalid, HasSubstr("a sum of 1")));
  EXPECT_THAT(from({0.5, 0.4}), StatusIs(kInvalid, HasSubstr("a sum of 1")));
  EXPECT_THAT(from({}), StatusIs(kInvalid, HasSubstr("a sum of 1")));
  EXPECT_THAT(from({1.5, -0.5}), StatusIs(kInvalid, HasSubstr("probs[1]")));
  EXPECT_THAT(from({std::nanf(""), 1}), StatusIs(kInvalid, HasSubstr("probs[0]")));
  EXPECT_THAT(from({0, std::numeric_limits<float>::infinity()}),
              StatusIs(kInvalid, HasSubstr("probs[1]")));
  EXPECT_THAT(from({0.5, 0.49995}), IsOk());
}

TEST(DistributionDoubleTest, EntropyOfKnownRows) {
  EXPECT_NEAR(RowOf<double>({0.5, 0.25, 0.125, 0.125}).EntropyBits(), 1.75, 1e-12);
  EXPECT_NEAR(RowOf<double>({0.5, 0, 0.5}).EntropyBits(), 1, 1e-12);
}

TEST(DistributionDoubleTest, DivergenceOfKnownRows) {
  const auto target = RowOf<double>({0.5, 0.3, 0.2, 0});
  const auto draft = RowOf<double>({0.2, 0.3, 0.3, 0.2});
  const Divergence divergence = target.DivergenceFrom(draft);
  EXPECT_NEAR(divergence.overlap, 0.7, 1e-12);
  EXPECT_NEAR(divergence.total_variation, 0.3, 1e-12);
  EXPECT_NEAR(divergence.kl, 0.5 * std::log(2.5) + 0.2 * std::log(2.0 / 3), 1e-12);
  EXPECT_EQ(target.DivergenceFrom(target).kl, 0);
  EXPECT_EQ(draft.DivergenceFrom(target).kl, std::numeric_limits<double>::infinity());
}

TEST(DistributionDoubleTest, DividedOverlapOfKnownRows) {
  const auto target = RowOf<double>({0.5, 0.3, 0.2, 0});
  const auto draft = RowOf<double>({0.2, 0.3, 0.3, 0.2});
  EXPECT_NEAR(target.DividedOverlap(1, draft), 0.7, 1e-12);
  EXPECT_NEAR(target.DividedOverlap(2, draft), 0.2 + 0.15 + 0.1, 1e-12);
}

// A sparse row and its dense copy are the same row, on either side.
TYPED_TEST(DistributionTest, SparseAndDenseGiveTheSameDivergence) {
  using Row = Distribution<TypeParam>;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const int64_t keep = static_cast<int64_t>(1 + seed % 9);
    const Row target = SoftmaxOf<TypeParam>(RandomLogits(60, seed), keep);
    const Row draft = SoftmaxOf<TypeParam>(RandomLogits(60, seed + 100), 12 - keep);
    const Row dense_target = RowOf<TypeParam>(target.Dense());
    const Row dense_draft = RowOf<TypeParam>(draft.Dense());
    const Divergence distance = dense_target.DivergenceFrom(dense_draft);
    for (const Row* p : {&target, &dense_target}) {
      for (const Row* q : {&draft, &dense_draft}) {
        EXPECT_NEAR(p->DividedOverlap(1.5, *q), dense_target.DividedOverlap(1.5, dense_draft), 1e-14);
        // Dense rows of float are compared in vectors.
        const double bound = sizeof(TypeParam) == sizeof(float) ? 2e-6 : 1e-14;
        const Divergence between = p->DivergenceFrom(*q);
        EXPECT_NEAR(between.overlap, distance.overlap, bound) << "seed " << seed;
        EXPECT_NEAR(between.total_variation, distance.total_variation, bound) << "seed " << seed;
        if (std::isinf(distance.kl)) {
          EXPECT_EQ(between.kl, distance.kl) << "seed " << seed;
        } else {
          EXPECT_NEAR(between.kl, distance.kl, 10 * bound) << "seed " << seed;
        }
      }
    }
    for (uint32_t i = 0; i < 200; ++i) {
      const double u = Uniform({seed, 2}, {i});
      ASSERT_EQ(target.Draw(u), dense_target.Draw(u)) << "seed " << seed << ", u " << u;
    }
    EXPECT_EQ(target.Argmax(), dense_target.Argmax());
    EXPECT_NEAR(target.EntropyBits(), dense_target.EntropyBits(), 2e-6);
  }
}

}  // namespace
}  // namespace paceline
