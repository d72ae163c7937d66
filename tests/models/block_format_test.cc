#include "models/block_format.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::StatusIs;

constexpr BlockType kAllTypes[] = {BlockType::kF32,  BlockType::kF16,  BlockType::kBF16,
                                   BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,
                                   BlockType::kQ5_1, BlockType::kQ8_0, BlockType::kQ2_K,
                                   BlockType::kQ3_K, BlockType::kQ4_K, BlockType::kQ5_K,
                                   BlockType::kQ6_K, BlockType::kQ8_K, BlockType::kIQ4_NL,
                                   BlockType::kIQ4_XS};

std::vector<uint8_t> FromHex(const std::string& hex) {
  const std::string bytes = absl::HexStringToBytes(hex);
  return {bytes.begin(), bytes.end()};
}

// Equal as numbers: zeros of both signs are one.
void ExpectDequantises(BlockType type, const std::vector<uint8_t>& bytes,
                       const std::vector<float>& expected) {
  std::vector<float> values(expected.size());
  ASSERT_THAT(Dequantise(type, bytes, values), IsOk());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(values[i], expected[i]) << "value " << i;
}

TEST(BlockFormatTest, GoldensOfEveryTypeAreExact) {
  const nlohmann::json types = testing::ReadJson("gguf_blocks.json")["types"];
  ASSERT_EQ(types.size(), std::size(kAllTypes) - 1);  // All but F32.
  for (const auto& [name, golden] : types.items()) {
    const auto type = BlockTypeFromGguf(golden["ggml_type"].get<uint32_t>());
    ASSERT_THAT(type, IsOk());
    EXPECT_EQ(BlockTypeName(*type), name);
    EXPECT_EQ(BlockElements(*type), golden["values_per_block"]);
    EXPECT_EQ(BlockSize(*type), golden["bytes_per_block"]);
    std::vector<uint8_t> row;
    std::vector<float> row_values;
    for (const auto& block : golden["blocks"]) {
      SCOPED_TRACE(name + " " + block["kind"].get<std::string>());
      const auto bytes = FromHex(block["hex"]);
      const auto values = testing::Numbers<float>(block["values"]);
      ExpectDequantises(*type, bytes, values);
      row.insert(row.end(), bytes.begin(), bytes.end());
      row_values.insert(row_values.end(), values.begin(), values.end());
    }
    SCOPED_TRACE(name + " joined");
    ExpectDequantises(*type, row, row_values);
  }
}

// BR-55.
TEST(BlockFormatTest, LowHalvesOfTheBytesComeFirst) {
  std::vector<uint8_t> block(20, 0);
  block[1] = 0x38;  // Scale 0.5.
  block[3] = 0xBC;  // Minimum -1.
  block[4] = 0x21;
  std::vector<float> expected(32, -1.0f);
  expected[0] = -0.5f;
  expected[16] = 0.0f;
  ExpectDequantises(BlockType::kQ4_1, block, expected);
}

TEST(BlockFormatTest, Float32IsCopied) {
  const std::vector<float> values = {0.0f, -1.5f, 1e-45f, 3e38f, -INFINITY};
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  ExpectDequantises(BlockType::kF32, bytes, values);
}

TEST(BlockFormatTest, EveryHalfComesBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if ((half & 0x7FFF) > 0x7C00) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value)))) << bits;
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
  }
}

TEST(BlockFormatTest, HalvesRoundToTheNearestThenToEven) {
  for (uint16_t half = 0; half < 0x7BFF; ++half) {
    const float low = HalfToFloat(half);
    const float high = HalfToFloat(half + 1);
    const float middle = low + (high - low) / 2;  // Exact.
    ASSERT_EQ(FloatToHalf(middle), half + (half & 1)) << half;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, low)), half) << half;
    ASSERT_EQ(FloatToHalf(-std::nextafter(middle, high)), (half + 1) | 0x8000) << half;
  }
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xFC00);
}

TEST(BlockFormatTest, TypeIdsGoBothWays) {
  for (BlockType type : kAllTypes) {
    EXPECT_THAT(BlockTypeFromGguf(GgufTypeId(type)), IsOkAndHolds(type)) << BlockTypeName(type);
    EXPECT_EQ(BlockBytes(type, 512), 512 / BlockElements(type) * BlockSize(type));
  }
}

TEST(BlockFormatTest, OtherTypeIdsAreRefusedByNumber) {
  for (uint32_t id : {4u, 5u, 31u, 1000u, 0xFFFFFFFFu}) {
    EXPECT_THAT(BlockTypeFromGguf(id), StatusIs(absl::StatusCode::kUnimplemented,
                                                HasSubstr("got GGUF type " + std::to_string(id))));
  }
  EXPECT_THAT(BlockTypeFromGguf(16),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("got IQ2_XXS")));
}

TEST(BlockFormatTest, BytesMustFitTheValues) {
  std::vector<float> values(512);
  for (BlockType type : kAllTypes) {
    const auto right = static_cast<size_t>(BlockBytes(type, 512));
    for (size_t size : {size_t{0}, right - 1, right + 1}) {
      EXPECT_THAT(Dequantise(type, std::vector<uint8_t>(size), values),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes: expected")));
    }
  }
  values.resize(33);
  EXPECT_THAT(Dequantise(BlockType::kQ8_0, std::vector<uint8_t>(34), values),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("whole blocks")));
}

}  // namespace
}  // namespace paceline
