// Block formats of GGUF tensors and their conversion to float32.
//
// A tensor's rows are sequences of blocks; a block holds BlockElements(type) values in
// BlockSize(type) bytes, little endian. Source: the GGUF specification.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace paceline {

enum class BlockType {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_K,
  kIQ4_NL,
  kIQ4_XS,
};

absl::string_view BlockTypeName(BlockType type);
int64_t BlockElements(BlockType type);  // Values a block: 1, 32 or 256.
int64_t BlockSize(BlockType type);      // Bytes a block.

// The format with this type id in GGUF files; kUnimplemented naming it and the supported ones.
absl::StatusOr<BlockType> BlockTypeFromGguf(uint32_t id);

// The type id of a format in GGUF files.
uint32_t GgufTypeId(BlockType type);

// IEEE half precision and float32. To half: to the nearest, ties to even; NaN becomes a quiet NaN.
float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);

// Bytes of `num_elements` values. num_elements must be a multiple of BlockElements(type).
int64_t BlockBytes(BlockType type, int64_t num_elements);

// Writes the values of `bytes` to `values`. kInvalidArgument unless bytes.size() is
// BlockBytes(type, values.size()). Exact: the result is the float32 nearest to scale * quant +
// minimum as float32 arithmetic gives it.
absl::Status Dequantise(BlockType type, std::span<const uint8_t> bytes, std::span<float> values);

}  // namespace paceline
