#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace paceline {
namespace {

TEST(ThreadPoolTest, EveryThreadRunsTheTaskOnce) {
  for (const int32_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    std::vector<int> runs(threads);
    for (int round = 0; round < 200; ++round) pool.Run([&](int32_t thread) { ++runs[thread]; });
    EXPECT_EQ(runs, std::vector<int>(threads, 200));
  }
}

// What is written before a barrier is read by others behind it, region after region.
TEST(ThreadPoolTest, RegionsDoNotOverlap) {
  constexpr int32_t kThreads = 4;
  ThreadPool pool(kThreads);
  std::vector<int64_t> values(kThreads, 1);
  std::vector<int64_t> sums(kThreads);
  pool.Run([&](int32_t thread) {
    for (int region = 0; region < 30; ++region) {
      sums[thread] = 0;
      for (const int64_t value : values) sums[thread] += value;
      pool.Wait();
      values[thread] = sums[thread] % 1000 + thread;
      pool.Wait();
    }
  });
  std::vector<int64_t> expected(kThreads, 1);
  int64_t sum = 0;
  for (int region = 0; region < 30; ++region) {
    sum = 0;
    for (const int64_t value : expected) sum += value;
    for (int32_t thread = 0; thread < kThreads; ++thread) expected[thread] = sum % 1000 + thread;
  }
  EXPECT_EQ(values, expected);
  EXPECT_EQ(sums, std::vector<int64_t>(kThreads, sum));
}

TEST(ThreadPoolTest, PartsCoverEverythingOnceInOrder) {
  for (const int64_t count : {0, 1, 7, 64, 100}) {
    for (const int64_t unit : {1, 8, 32}) {
      for (const int64_t parts : {1, 2, 3, 9}) {
        int64_t next = 0;
        for (int64_t part = 0; part < parts; ++part) {
          const auto [first, last] = PartOf(count, part, parts, unit);
          EXPECT_EQ(first, next);
          EXPECT_LE(first, last);
          EXPECT_TRUE(first % unit == 0 || first == count);
          next = last;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

}  // namespace
}  // namespace paceline
