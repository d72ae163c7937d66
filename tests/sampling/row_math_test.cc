// Rows in vectors against plain loops in double.
#include "sampling/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace paceline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomRow(size_t size, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> row(size);
  for (float& value : row) value = normal(random);
  return row;
}

TEST(RowMathTest, ExponentialsAreWithinTheirStatedError) {
  std::vector<float> logits;
  for (float x = 0; x > -87; x -= 0.00137f) logits.push_back(x);
  std::vector<float> weights(logits.size());
  WriteExp(logits, 0.0f, weights.data());
  double largest = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = std::exp(static_cast<double>(logits[i]));
    largest = std::max(largest, std::abs(weights[i] / expected - 1));
  }
  std::printf("[row_math] exp: largest relative error %.2e\n", largest);
  EXPECT_LE(largest, 3e-7);
}

TEST(RowMathTest, SumsAreThoseOfTheLoop) {
  for (const size_t size : {1, 3, 8, 111, 49152}) {
    auto logits = RandomRow(size, 5, 4);
    if (size > 3) logits[2] = -kInfinity, logits[3] = -3e38f;
    const float max = RowMax(logits);
    EXPECT_EQ(max, *std::max_element(logits.begin(), logits.end()));
    double mass = 0;
    double moment = 0;
    for (const float logit : logits) {
      const double shifted = static_cast<double>(logit) - max;
      mass += std::exp(shifted);
      if (std::exp(shifted) > 0) moment += shifted * std::exp(shifted);
    }
    const RowSums sums = SumExp(logits, max);
    EXPECT_NEAR(sums.mass, mass, 1e-6 * mass) << size;
    EXPECT_NEAR(sums.moment, moment, 1e-6 * std::abs(moment)) << size;
    std::vector<float> weights(size);
    WriteExp(logits, max, weights.data());
    EXPECT_NEAR(Sum(weights), mass, 1e-6 * mass) << size;
    if (size > 3) {
      EXPECT_EQ(weights[2], 0);
      EXPECT_EQ(weights[3], 0);
    }
  }
}

TEST(RowMathTest, ComparisonIsThatOfTheLoop) {
  for (const size_t size : {1, 7, 49152}) {
    std::vector<float> p(size), q(size);
    const auto fill = [](const std::vector<float>& logits, std::vector<float>& probs) {
      const RowSums sums = WriteExp(logits, RowMax(logits), probs.data());
      Scale(std::span(probs), 1 / sums.mass);
    };
    fill(RandomRow(size, 1, 3), p);
    fill(RandomRow(size, 2, 3), q);
    double overlap = 0;
    double kl = 0;
    for (size_t i = 0; i < size; ++i) {
      overlap += std::min(p[i], q[i]);
      kl += p[i] * std::log(static_cast<double>(p[i]) / q[i]);
    }
    EXPECT_NEAR(Compare(p, q).overlap, overlap, 1e-7);
    EXPECT_NEAR(Compare(p, q).kl, kl, 2e-6);
    EXPECT_NEAR(Compare(p, p).kl, 0, 1e-9);
    q[size / 2] = 0;
    EXPECT_EQ(Compare(p, q).kl, std::numeric_limits<double>::infinity());
    p[size / 2] = 0;
    EXPECT_TRUE(std::isfinite(Compare(p, q).kl));
  }
}

}  // namespace
}  // namespace paceline
