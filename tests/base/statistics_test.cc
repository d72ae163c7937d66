#include "base/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

TEST(StatisticsTest, RecordedWilsonIntervals) {
  const auto data = testing::ReadJson("verify.json");
  int run = 0;
  for (const auto& test : data.at("cases")) {
    const std::string name = test.at("name");
    if (!name.starts_with("metric/wilson/")) continue;
    const auto& inputs = test.at("inputs");
    const Interval interval = WilsonInterval(inputs.at("successes"), inputs.at("trials"));
    const auto& expected = test.at("expected").at("interval");
    EXPECT_NEAR(interval.low, expected[0].get<double>(), test.at("tolerance").get<double>())
        << name;
    EXPECT_NEAR(interval.high, expected[1].get<double>(), test.at("tolerance").get<double>())
        << name;
    ++run;
  }
  EXPECT_EQ(run, 5);
}

TEST(StatisticsTest, WilsonIntervalHoldsTheRate) {
  for (int64_t trials : {1, 7, 1000}) {
    for (int64_t successes = 0; successes <= trials; ++successes) {
      const double rate = static_cast<double>(successes) / static_cast<double>(trials);
      const Interval interval = WilsonInterval(static_cast<double>(successes), trials);
      EXPECT_LE(interval.low, rate + 1e-12);
      EXPECT_GE(interval.high, rate - 1e-12);
      EXPECT_GE(interval.low, 0.0);
      EXPECT_LE(interval.high, 1.0);
    }
  }
}

TEST(StatisticsTest, MedianOfOddEvenAndEmpty) {
  EXPECT_EQ(Median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(Median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(Median(std::vector<double>{-7}), -7);
  EXPECT_TRUE(std::isnan(Median({})));
}

// Pairs whose ratio of sums is near 2, with noise.
struct Sample {
  std::vector<double> numerators, denominators;
};
Sample MakeSample(int count) {
  Sample sample;
  for (int i = 0; i < count; ++i) {
    const double size = 10 + i % 7;
    const double noise = Uniform({99, 0}, {static_cast<uint32_t>(i)}) - 0.5;
    sample.denominators.push_back(size);
    sample.numerators.push_back(size * (2 + noise));
  }
  return sample;
}

TEST(StatisticsTest, BootstrapIsAFunctionOfItsSeed) {
  const Sample sample = MakeSample(30);
  const auto interval = [&](uint64_t seed) {
    return BootstrapRatio(sample.numerators, sample.denominators, 500, seed);
  };
  EXPECT_EQ(interval(1).low, interval(1).low);
  EXPECT_EQ(interval(1).high, interval(1).high);
  EXPECT_NE(interval(1).low, interval(2).low);
}

TEST(StatisticsTest, BootstrapHoldsTheRatioAndNarrows) {
  const auto width = [](int count) {
    const Sample sample = MakeSample(count);
    double numerator = 0, denominator = 0;
    for (double value : sample.numerators) numerator += value;
    for (double value : sample.denominators) denominator += value;
    const Interval interval = BootstrapRatio(sample.numerators, sample.denominators, 500, 5);
    EXPECT_LT(interval.low, numerator / denominator);
    EXPECT_GT(interval.high, numerator / denominator);
    return interval.high - interval.low;
  };
  EXPECT_LT(width(400), width(25) / 2);
}

TEST(StatisticsTest, BootstrapOfOneEntryIsItsRatio) {
  const Interval interval = BootstrapRatio(std::vector<double>{3}, std::vector<double>{2}, 100, 1);
  EXPECT_EQ(interval.low, 1.5);
  EXPECT_EQ(interval.high, 1.5);
}

// Prompts of which nothing was counted leave resamples without a ratio; those are left out.
TEST(StatisticsTest, BootstrapLeavesOutResamplesWithoutTrials) {
  const std::vector<double> numerators = {0, 2, 0, 6, 0};
  const std::vector<double> denominators = {0, 1, 0, 2, 0};
  const Interval interval = BootstrapRatio(numerators, denominators, 2000, 3);
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 3);
  const std::vector<double> none = {0, 0, 0};
  EXPECT_TRUE(std::isnan(BootstrapRatio(none, none, 100, 3).low));
}

TEST(StatisticsTest, BootstrapOfEqualRatiosHasNoWidth) {
  const std::vector<double> numerators = {2, 4, 8};
  const std::vector<double> denominators = {1, 2, 4};
  const Interval interval = BootstrapRatio(numerators, denominators, 100, 1);
  EXPECT_EQ(interval.low, 2);
  EXPECT_EQ(interval.high, 2);
}

}  // namespace
}  // namespace paceline
