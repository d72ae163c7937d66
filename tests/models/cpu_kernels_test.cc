// Kernels of every instruction set that runs here, against plain loops in double.
#include "models/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "models/block_format.h"
#include "models/cpu/isa.h"
#include "models/kv_cache.h"
#include "tests/support/status_matchers.h"

namespace paceline::cpu {
namespace {

// Where a block's scale stands.
int64_t ScaleOffset(BlockType type) {
  switch (type) {
    case BlockType::kQ2_K:
      return 80;
    case BlockType::kQ3_K:
      return 108;
    case BlockType::kQ6_K:
      return 208;
    default:
      return 0;
  }
}

// Where quants begin that fill the rest of a block, or the part in front of the scales.
int64_t QuantsOffset(BlockType type) {
  const QuantFormat format = QuantFormatOf(type);
  if (type == BlockType::kQ2_K) return 16;
  if (ScaleOffset(type) > 0) return 0;
  return BlockSize(type) - format.elements * format.bits / 8;
}

// A matrix in a file's format; blocks of random bytes with scales (and minima) of order 2^-8.
struct FileMatrix {
  FileMatrix(BlockType type, int64_t rows, int64_t columns, uint32_t seed)
      : bytes(BlockBytes(type, rows * columns)) {
    std::mt19937 random(seed);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    const int64_t size = BlockSize(type);
    for (size_t at = 0; at < bytes.size(); at += size) {
      const auto put_half = [&](size_t offset) {
        const uint16_t half = FloatToHalf(std::ldexp(static_cast<float>(random() % 512) - 256, -16));
        std::memcpy(bytes.data() + at + offset, &half, 2);
      };
      if (type == BlockType::kF32 || type == BlockType::kQ8_K) {
        const float value = static_cast<float>(random() % 2000) / 1000 - 1;
        std::memcpy(bytes.data() + at, &value, 4);
      } else if (type == BlockType::kBF16) {
        bytes[at + 1] = 0x3e;
      } else {
        const int64_t scale = ScaleOffset(type);
        put_half(scale);
        if (QuantFormatOf(type).has_minimum) put_half(scale + 2);
      }
    }
    tensor = {"w", {rows, columns}, type, bytes};
    values.resize(rows * columns);
    EXPECT_THAT(Dequantise(type, bytes, std::span<float>(values)), testing::IsOk());
  }

  std::vector<uint8_t> bytes;
  std::vector<float> values;  // [rows, columns]
  TensorView tensor;
};

struct Inputs {
  Inputs(const Kernels& kernels, int64_t rows, int64_t columns, uint32_t seed)
      : values(rows * columns),
        quants(values.size()),
        scales(rows * (columns / kBlock)),
        sums(3 * scales.size()) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    for (int64_t row = 0; row < rows && columns % kBlock == 0; ++row) {
      kernels.quantise(values.data() + row * columns, columns, quants.data() + row * columns,
                       scales.data() + row * (columns / kBlock),
                       sums.data() + 3 * row * (columns / kBlock));
    }
    view = {values.data(), quants.data(), scales.data(), sums.data(), columns};
  }

  std::vector<float> values;
  std::vector<int8_t> quants;
  std::vector<float> scales;
  std::vector<float> sums;
  Activations view;
};

class KernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};

constexpr BlockType kTypes[] = {BlockType::kF32,  BlockType::kF16,  BlockType::kBF16,
                                BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,
                                BlockType::kQ5_1, BlockType::kQ8_0, BlockType::kQ2_K,
                                BlockType::kQ3_K, BlockType::kQ4_K, BlockType::kQ5_K,
                                BlockType::kQ6_K, BlockType::kQ8_K, BlockType::kIQ4_NL,
                                BlockType::kIQ4_XS};

// Inputs that give more than one block, or a number that is no multiple of a vector.
int64_t ColumnsFor(BlockType type) {
  return BlockElements(type) == 1 ? 45 : std::max<int64_t>(96, 2 * BlockElements(type));
}

TEST_P(KernelsTest, MultiplyIsTheProductOfWhatIsStored) {
  for (const BlockType type : kTypes) {
    for (const int64_t rows : {1, 8, 21}) {
      const int64_t columns = ColumnsFor(type);
      const FileMatrix file(type, rows, columns, 3);
      const auto matrix = PackedMatrix::Pack(file.tensor);
      ASSERT_THAT(matrix, testing::IsOk());
      constexpr int64_t kInputs = 15;  // 8 + 7 and 4 + 4 + 4 + 3 rows that share a tile.
      const Inputs x(kernels(), kInputs, columns, 4);
      std::vector<float> y(kInputs * rows, -1);
      kernels().multiply(*matrix, x.view, kInputs, 0, matrix->num_tiles(), y.data(), rows);
      for (int64_t m = 0; m < kInputs; ++m) {
        for (int64_t n = 0; n < rows; ++n) {
          double sum = 0;
          double magnitude = 0;
          for (int64_t k = 0; k < columns; ++k) {
            const int64_t block = (m * columns + k) / kBlock;
            const double input = BlockElements(PackedType(type)) == 1
                                     ? x.values[m * columns + k]
                                     : static_cast<double>(x.quants[m * columns + k]) * x.scales[block];
            sum += input * file.values[n * columns + k];
            magnitude += std::abs(input * file.values[n * columns + k]);
          }
          EXPECT_NEAR(y[m * rows + n], sum, 1e-6 * magnitude + 1e-9) << BlockTypeName(type);
        }
      }
    }
  }
}

// The largest quants of both signs: sums inside a block must not saturate.
TEST_P(KernelsTest, ExtremeQuantsDoNotSaturate) {
  for (const BlockType type : kTypes) {
    if (BlockElements(PackedType(type)) == 1) continue;
    for (const uint8_t byte : {0x00, 0x7f, 0x80, 0x81, 0xff}) {
      for (const float sign : {1.0f, -1.0f}) {
        const int64_t columns = BlockElements(type);
        FileMatrix file(type, 8, columns, 1);
        const QuantFormat format = QuantFormatOf(type);
        const int64_t num_quant_bytes = columns * format.bits / 8;
        const int64_t header = QuantsOffset(type);
        for (int64_t i = 0; i < static_cast<int64_t>(file.bytes.size()); ++i) {
          const int64_t at = i % BlockSize(type) - header;
          if (at >= 0 && at < num_quant_bytes) file.bytes[i] = byte;
        }
        ASSERT_THAT(Dequantise(type, file.bytes, std::span<float>(file.values)), testing::IsOk());
        const auto matrix = PackedMatrix::Pack(file.tensor);
        ASSERT_THAT(matrix, testing::IsOk());
        const std::vector<float> ones(columns, sign);
        std::vector<int8_t> quants(columns);
        std::vector<float> scales(columns / kBlock);
        std::vector<float> sums(3 * scales.size());
        kernels().quantise(ones.data(), columns, quants.data(), scales.data(), sums.data());
        EXPECT_FLOAT_EQ(sums[0], sign * 32);
        float y[8];
        kernels().multiply(*matrix, {ones.data(), quants.data(), scales.data(), sums.data(), columns},
                           1, 0, 1, y, 8);
        for (int64_t n = 0; n < 8; ++n) {
          double expected = 0;
          double magnitude = 0;
          for (int64_t k = 0; k < columns; ++k) {
            expected += sign * file.values[n * columns + k];
            magnitude += std::abs(file.values[n * columns + k]);
          }
          EXPECT_NEAR(y[n], expected, 1e-5 * magnitude + 1e-6) << BlockTypeName(type);
        }
      }
    }
  }
}

TEST_P(KernelsTest, UnpackGivesTheFilesValues) {
  for (const BlockType type : kTypes) {
    const int64_t columns = ColumnsFor(type);
    const FileMatrix file(type, 11, columns, 9);
    const auto matrix = PackedMatrix::Pack(file.tensor);
    ASSERT_THAT(matrix, testing::IsOk());
    for (int64_t row = 0; row < 11; ++row) {
      std::vector<float> values(columns);
      matrix->Unpack(row, values.data());
      EXPECT_EQ(std::memcmp(values.data(), file.values.data() + row * columns, columns * 4), 0)
          << BlockTypeName(type) << ", row " << row;
    }
  }
}

TEST_P(KernelsTest, QuantisedValuesAreWithinHalfAStep) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const float size : {1e-30f, 1.0f, 1e30f}) {
    std::vector<float> values(64);
    for (float& value : values) value = size * normal(random);
    std::vector<int8_t> quants(64);
    float scales[2];
    float sums[6];
    kernels().quantise(values.data(), 64, quants.data(), scales, sums);
    for (int block = 0; block < 2; ++block) {
      float halves[2] = {0, 0};
      for (int i = 0; i < 32; ++i) {
        const int8_t quant = quants[32 * block + i];
        EXPECT_NEAR(scales[block] * quant, values[32 * block + i], 0.5001 * scales[block]);
        halves[i / 16] += quant;
      }
      EXPECT_FLOAT_EQ(sums[3 * block], scales[block] * (halves[0] + halves[1]));
      EXPECT_FLOAT_EQ(sums[3 * block + 1], scales[block] * halves[0]);
      EXPECT_FLOAT_EQ(sums[3 * block + 2], scales[block] * halves[1]);
    }
  }
}

TEST_P(KernelsTest, ZerosStayZeroAndWhatIsNotFiniteBecomesNan) {
  std::vector<float> values(32, 0.0f);
  std::vector<int8_t> quants(32, 1);
  float scale = 1;
  float sums[3] = {1, 1, 1};
  kernels().quantise(values.data(), 32, quants.data(), &scale, sums);
  EXPECT_EQ(scale, 0);
  for (const float sum : sums) EXPECT_EQ(sum, 0);
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    values[13] = bad;
    kernels().quantise(values.data(), 32, quants.data(), &scale, sums);
    EXPECT_TRUE(std::isnan(scale));
  }
}

TEST_P(KernelsTest, NormAndActivationFollowTheirFormulas) {
  constexpr int64_t kCount = 37;  // Not a multiple of a vector.
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> x(kCount), weight(kCount), y(kCount);
  for (int64_t i = 0; i < kCount; ++i) x[i] = normal(random), weight[i] = normal(random);
  x[0] = 200;
  x[1] = -200;
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  kernels().rms_norm(x.data(), weight.data(), kCount, 1e-5f, y.data());
  for (int64_t i = 0; i < kCount; ++i) {
    const double expected = x[i] / std::sqrt(squares / kCount + 1e-5) * weight[i];
    EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected));
  }
  kernels().silu_multiply(x.data(), weight.data(), kCount, y.data());
  for (int64_t i = 0; i < kCount; ++i) {
    const double expected = x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * weight[i];
    EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-35);
  }
}

TEST_P(KernelsTest, AttentionIsTheSoftmaxOfTheScores) {
  constexpr int64_t kDim = 24;  // One vector of 16 dimensions, and eight alone.
  constexpr int64_t kPages = kAttentionChunk / KvCache::kPageSize;
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> keys(kAttentionChunk * kDim), values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = FloatToHalf(normal(random));
    values[i] = FloatToHalf(normal(random));
  }
  const uint16_t* key_pages[kPages];
  const uint16_t* value_pages[kPages];
  for (int64_t page = 0; page < kPages; ++page) {
    key_pages[page] = keys.data() + page * KvCache::kPageSize * kDim;
    value_pages[page] = values.data() + page * KvCache::kPageSize * kDim;
  }
  std::vector<float> scratch(kHeadsTogether * kDim), scores(kHeadsTogether * kAttentionChunk);
  for (const int64_t num_heads : {1, 3, 5, 12, 23}) {
    for (const int64_t most : {1, 16, 77, 128}) {
      std::vector<float> queries(num_heads * kDim), largest(num_heads), mass(num_heads),
          weighted(num_heads * kDim), y(kDim);
      for (float& query : queries) query = normal(random);
      std::vector<AttentionHead> heads;
      for (int64_t head = 0; head < num_heads; ++head) {
        heads.push_back({&queries[head * kDim], 0, std::max<int64_t>(1, most - head % 4), &largest[head],
                         &mass[head], &weighted[head * kDim]});
      }
      kernels().attend({heads.data(), num_heads, key_pages, value_pages, kDim, scratch.data(),
                        scores.data()});
      for (int64_t head = 0; head < num_heads; ++head) {
        const int64_t count = heads[head].count;
        const float* part = weighted.data() + head * kDim;
        kernels().combine(&part, &largest[head], &mass[head], 1, kDim, y.data());
        std::vector<double> expected(kDim);
        double total = 0;
        for (int64_t at = 0; at < count; ++at) {
          const int64_t page = at / KvCache::kPageSize;
          const int64_t place = at % KvCache::kPageSize;
          double score = 0;
          for (int64_t d = 0; d < kDim; ++d) {
            score += static_cast<double>(queries[head * kDim + d]) *
                     HalfToFloat(key_pages[page][d * KvCache::kPageSize + place]);
          }
          total += std::exp(score);
          for (int64_t d = 0; d < kDim; ++d) {
            expected[d] += std::exp(score) * HalfToFloat(value_pages[page][place * kDim + d]);
          }
        }
        for (int64_t d = 0; d < kDim; ++d) EXPECT_NEAR(y[d], expected[d] / total, 2e-6);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, ::testing::ValuesIn(RunnableKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace paceline::cpu
