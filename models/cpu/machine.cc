#include "models/cpu/machine.h"

#include <algorithm>
#include <new>
#include <thread>

#include "base/statistics.h"
#include "base/status_macros.h"
#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "models/block_format.h"
#include "models/cpu/isa.h"
#include "models/cpu/kernels.h"

namespace paceline::cpu {
namespace {

constexpr int kTries = 7;
using Word = uint64_t __attribute__((vector_size(32), aligned(8)));

uint64_t SumOf(const uint64_t* from, int64_t count) {
  Word sums[4] = {};
  for (int64_t i = 0; i + 16 <= count; i += 16) {
    for (int j = 0; j < 4; ++j) sums[j] += *reinterpret_cast<const Word*>(from + i + 4 * j);
  }
  const Word sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return sum[0] + sum[1] + sum[2] + sum[3];
}

double StreamGbPerSecond(ThreadPool& pool) {
  constexpr int64_t kWords = int64_t{32} << 20;
  const std::vector<uint64_t> memory(kWords, 1);
  std::vector<uint64_t> sums(pool.num_threads());
  std::vector<double> rates;
  for (int i = 0; i < kTries; ++i) {
    Stopwatch clock;
    pool.Run([&](int32_t thread) {
      const auto [first, last] = PartOf(kWords, thread, pool.num_threads(), 16);
      sums[thread] = SumOf(memory.data() + first, last - first);
    });
    const double ms = clock.Lap();
    uint64_t sum = 0;
    for (const uint64_t part : sums) sum += part;
    if (sum == kWords) rates.push_back(kWords * 8 / ms / 1e6);
  }
  return Median(rates);
}

absl::StatusOr<double> MultiplyGmacPerSecond(const Kernels& kernels, ThreadPool& pool) {
  constexpr int64_t kOutputs = 32, kInputs = 512, kRows = 8, kCalls = 1000;
  const std::vector<uint8_t> bytes(BlockBytes(BlockType::kQ4_1, kOutputs * kInputs), 0x11);
  PACELINE_ASSIGN_OR_RETURN(
      const PackedMatrix matrix,
      PackedMatrix::Pack({"multiply test", {kOutputs, kInputs}, BlockType::kQ4_1, bytes}));
  const std::vector<float> values(kRows * kInputs, 1.0f);
  const std::vector<int8_t> quants(kRows * kInputs, 1);
  const std::vector<float> scales(kRows * kInputs / kBlock, 1.0f);
  const std::vector<float> sums(3 * scales.size(), 1.0f);
  std::vector<double> rates;
  for (int i = 0; i < kTries; ++i) {
    Stopwatch clock;
    pool.Run([&](int32_t) {
      std::vector<float> y(kRows * kOutputs);
      for (int64_t call = 0; call < kCalls; ++call) {
        kernels.multiply(matrix, {values.data(), quants.data(), scales.data(), sums.data(), kInputs},
                         kRows, 0, matrix.num_tiles(), y.data(), kOutputs);
      }
    });
    const double work = static_cast<double>(kOutputs * kInputs * kRows * kCalls) * pool.num_threads();
    rates.push_back(work / clock.Lap() / 1e6);
  }
  return Median(rates);
}

}  // namespace

absl::StatusOr<MachineLimits> MeasureMachine(const std::string& isa, int32_t num_threads) {
  PACELINE_ASSIGN_OR_RETURN(const Kernels* kernels, KernelsNamed(isa));
  try {
    ThreadPool pool(ThreadsFor(num_threads));
    MachineLimits limits;
    limits.stream_gb_per_s = StreamGbPerSecond(pool);
    PACELINE_ASSIGN_OR_RETURN(limits.multiply_gmac_per_s, MultiplyGmacPerSecond(*kernels, pool));
    return limits;
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("memory: expected 256 MB to read, got none");
  }
}

int32_t ThreadsFor(int32_t num_threads) {
  if (num_threads > 0) return num_threads;
  return static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

std::vector<std::string> RunnableIsas() {
  std::vector<std::string> names;
  for (const Kernels* kernels : RunnableKernels()) names.push_back(kernels->name);
  return names;
}

}  // namespace paceline::cpu
