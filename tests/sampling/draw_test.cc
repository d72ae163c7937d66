// Every way of drawing follows its row: ten million draws of each, chi-square with a fixed seed, which
// a right draw fails with probability 1e-4.
#include "sampling/draw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/philox.h"
#include "tests/support/chi_square.h"
#include "tests/support/monte_carlo.h"

namespace paceline {
namespace {

constexpr int32_t kDraws = testing::NumStreams(10'000'000);
constexpr double kFalseAlarm = 1e-4;

// Weights over five orders of magnitude, some of them 0, not normalised.
template <typename Real>
std::vector<Real> Weights(int32_t size) {
  std::vector<Real> weights;
  for (int32_t id = 0; id < size; ++id) {
    const double u = TokenUniform({17, 0}, {}, static_cast<uint32_t>(id));
    weights.push_back(id % 7 == 3 ? Real{0} : static_cast<Real>(std::exp(11 * u - 8)));
  }
  return weights;
}

template <typename Real, typename Draw>
void ExpectFollows(const std::vector<Real>& weights, Draw draw) {
  std::map<int64_t, int64_t> counts;
  for (uint32_t i = 0; i < static_cast<uint32_t>(kDraws); ++i) ++counts[draw(i)];
  double total = 0;
  for (const double weight : weights) total += weight;
  std::map<int64_t, double> law;
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0) law[static_cast<int64_t>(id)] = weights[id] / total;
  }
  const testing::ChiSquare fit = testing::ChiSquareTest(counts, law);
  EXPECT_GE(fit.p_value, kFalseAlarm) << fit.statistic << " at " << fit.degrees << " degrees";
}

template <typename Real>
class DrawTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DrawTest, Reals);

TYPED_TEST(DrawTest, InverseCdfFollowsTheWeights) {
  const auto weights = Weights<TypeParam>(111);
  const std::span<const TypeParam> row(weights);
  ExpectFollows(weights, [&](uint32_t i) { return InverseCdf(row, Uniform({23, 1}, {i})); });
}

TYPED_TEST(DrawTest, GumbelFollowsTheWeights) {
  const auto weights = Weights<TypeParam>(8);
  const std::span<const TypeParam> row(weights);
  ExpectFollows(weights, [&](uint32_t i) { return GumbelIndex(row, {}, {23, 1}, {i}); });
}

// The textbook form: the largest log weight + Gumbel noise of each token. Ids of a sparse row are the
// tokens whose noise is read.
TYPED_TEST(DrawTest, GumbelIsTheLargestKeyAtTheTokensOwnNoise) {
  const auto weights = Weights<TypeParam>(40);
  std::vector<int32_t> ids;
  std::vector<TypeParam> kept;
  for (int32_t id = 0; id < 40; id += 3) {
    ids.push_back(id);
    kept.push_back(weights[id]);
  }
  for (uint32_t position = 0; position < 2000; ++position) {
    const StreamKey key{5, 2};
    int64_t best = -1;
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < ids.size(); ++i) {
      const double u = TokenUniform(key, {position}, static_cast<uint32_t>(ids[i]));
      const double value = std::log(static_cast<double>(kept[i])) - std::log(-std::log(u));
      if (value > largest) {
        largest = value;
        best = static_cast<int64_t>(i);
      }
    }
    ASSERT_EQ(GumbelIndex(std::span<const TypeParam>(kept), ids, key, {position}), best);
  }
}

TYPED_TEST(DrawTest, NothingPositiveGivesNoIndex) {
  const std::vector<TypeParam> zeros(5, 0);
  EXPECT_EQ(GumbelIndex(std::span<const TypeParam>(zeros), {}, {1, 0}, {}), -1);
  EXPECT_EQ(InverseCdf(std::span<const TypeParam>(zeros), 0.5), -1);
}

}  // namespace
}  // namespace paceline
