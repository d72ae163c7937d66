#include "models/block_format.h"

#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/quant_block.h"

namespace paceline {
namespace {

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float BrainToFloat(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

template <BlockType kType>
void Quantised(const uint8_t* block, float* values) {
  DequantiseBlock(QuantFormatOf(kType), ReadQuantBlock(kType, block), values);
}

void F32(const uint8_t* block, float* value) { *value = Load<float>(block); }
void F16(const uint8_t* block, float* value) { *value = HalfToFloat(Load<uint16_t>(block)); }
void BF16(const uint8_t* block, float* value) { *value = BrainToFloat(Load<uint16_t>(block)); }

// A float32 scale, 256 signed bytes, and sums of these that are not needed here.
void Q8K(const uint8_t* block, float* values) {
  const auto scale = Load<float>(block);
  for (int i = 0; i < 256; ++i) {
    values[i] = scale * static_cast<float>(static_cast<int8_t>(block[4 + i]));
  }
}

struct Format {
  BlockType type;
  absl::string_view name;
  uint32_t gguf_id;
  int64_t elements;
  int64_t bytes;
  void (*decode)(const uint8_t* block, float* values);
};

// Every format that can be read. A new one is a decoder and a row here.
constexpr Format kFormats[] = {
    {BlockType::kF32, "F32", 0, 1, 4, F32},
    {BlockType::kF16, "F16", 1, 1, 2, F16},
    {BlockType::kBF16, "BF16", 30, 1, 2, BF16},
    {BlockType::kQ4_0, "Q4_0", 2, 32, 18, Quantised<BlockType::kQ4_0>},
    {BlockType::kQ4_1, "Q4_1", 3, 32, 20, Quantised<BlockType::kQ4_1>},
    {BlockType::kQ5_0, "Q5_0", 6, 32, 22, Quantised<BlockType::kQ5_0>},
    {BlockType::kQ5_1, "Q5_1", 7, 32, 24, Quantised<BlockType::kQ5_1>},
    {BlockType::kQ8_0, "Q8_0", 8, 32, 34, Quantised<BlockType::kQ8_0>},
    {BlockType::kQ2_K, "Q2_K", 10, 256, 84, Quantised<BlockType::kQ2_K>},
    {BlockType::kQ3_K, "Q3_K", 11, 256, 110, Quantised<BlockType::kQ3_K>},
    {BlockType::kQ4_K, "Q4_K", 12, 256, 144, Quantised<BlockType::kQ4_K>},
    {BlockType::kQ5_K, "Q5_K", 13, 256, 176, Quantised<BlockType::kQ5_K>},
    {BlockType::kQ6_K, "Q6_K", 14, 256, 210, Quantised<BlockType::kQ6_K>},
    {BlockType::kQ8_K, "Q8_K", 15, 256, 292, Q8K},
    {BlockType::kIQ4_NL, "IQ4_NL", 20, 32, 18, Quantised<BlockType::kIQ4_NL>},
    {BlockType::kIQ4_XS, "IQ4_XS", 23, 256, 136, Quantised<BlockType::kIQ4_XS>},
};

// Formats that files may have and that are refused, so that a message can name them.
struct OtherFormat {
  uint32_t gguf_id;
  absl::string_view name;
};
constexpr OtherFormat kOtherFormats[] = {
    {9, "Q8_1"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"},
    {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},   {28, "F64"},
    {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"},
};

std::string OtherName(uint32_t id) {
  for (const OtherFormat& format : kOtherFormats) {
    if (format.gguf_id == id) return std::string(format.name);
  }
  return absl::StrCat("GGUF type ", id);
}

const Format& FormatOf(BlockType type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return format;
  }
  return kFormats[0];
}

}  // namespace

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1F;
  const uint32_t mantissa = half & 0x3FF;
  if (exponent == 0) {  // Zero and subnormals: mantissa * 2^-24, exact in float32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  uint32_t half = 0;
  if (magnitude > 0x7F800000) {  // NaN.
    half = 0x7E00;
  } else if (magnitude >= 0x477FF000) {  // 65520 and more are nearer to infinity.
    half = 0x7C00;
  } else if (magnitude < 0x38800000) {  // Subnormal: one unit of 0.5f is 2^-24, as of the half.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000;
  } else {
    half = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

absl::string_view BlockTypeName(BlockType type) { return FormatOf(type).name; }
int64_t BlockElements(BlockType type) { return FormatOf(type).elements; }
int64_t BlockSize(BlockType type) { return FormatOf(type).bytes; }

uint32_t GgufTypeId(BlockType type) { return FormatOf(type).gguf_id; }

int64_t BlockBytes(BlockType type, int64_t num_elements) {
  return num_elements / BlockElements(type) * BlockSize(type);
}

absl::StatusOr<BlockType> BlockTypeFromGguf(uint32_t id) {
  std::string known;
  for (const Format& format : kFormats) {
    if (format.gguf_id == id) return format.type;
    absl::StrAppend(&known, known.empty() ? "" : ", ", format.name);
  }
  return absl::UnimplementedError(
      absl::StrCat("type: expected one of ", known, ", got ", OtherName(id)));
}

absl::Status Dequantise(BlockType type, std::span<const uint8_t> bytes, std::span<float> values) {
  const Format& format = FormatOf(type);
  const auto count = static_cast<int64_t>(values.size());
  if (count % format.elements != 0 ||
      static_cast<int64_t>(bytes.size()) != BlockBytes(type, count)) {
    return absl::InvalidArgumentError(absl::StrCat("bytes: expected whole blocks of ", format.name,
                                                   " for ", count, " values, got ", bytes.size(),
                                                   " bytes"));
  }
  for (int64_t block = 0; block < count / format.elements; ++block) {
    format.decode(bytes.data() + block * format.bytes, values.data() + block * format.elements);
  }
  return absl::OkStatus();
}

}  // namespace paceline
