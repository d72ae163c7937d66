// Blocks of the quantised formats taken apart: small integers and what scales them.
#pragma once

#include <array>
#include <cstdint>

#include "models/block_format.h"

namespace paceline {

// How a quantised format codes a value:
//
//   value = scale * sub_scale * (quant - offset) + minimum * sub_minimum
//
// or, of a format with a codebook, scale * sub_scale * kCodebook[quant],
//
// with one scale and minimum a block, and one sub-scale and sub-minimum for each `run` values; a
// format without sub-scales has 1 for them, one without a minimum 0.
struct QuantFormat {
  int64_t elements;  // Values a block: 32 or 256.
  int64_t run;       // Values that share a sub-scale: 16 or 32.
  int bits;          // Of a quant: 2 to 6 unsigned, or 8 signed.
  int offset;
  bool has_minimum;
  bool has_sub_scales;
  bool has_codebook = false;

  // Of what is multiplied: quants, or what stands for them in the codebook.
  constexpr bool is_signed() const { return bits == 8 || has_codebook; }
};

// What the 4-bit quants of IQ4_NL and IQ4_XS stand for.
inline constexpr std::array<int8_t, 16> kCodebook = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

// Of the quantised types; not to be asked of F32, F16, BF16 and Q8_K.
constexpr QuantFormat QuantFormatOf(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0:
      return {32, 32, 4, 8, false, false};
    case BlockType::kQ4_1:
      return {32, 32, 4, 0, true, false};
    case BlockType::kQ5_0:
      return {32, 32, 5, 16, false, false};
    case BlockType::kQ5_1:
      return {32, 32, 5, 0, true, false};
    case BlockType::kQ2_K:
      return {256, 16, 2, 0, true, true};
    case BlockType::kQ3_K:
      return {256, 16, 3, 4, false, true};
    case BlockType::kQ4_K:
      return {256, 32, 4, 0, true, true};
    case BlockType::kQ5_K:
      return {256, 32, 5, 0, true, true};
    case BlockType::kQ6_K:
      return {256, 16, 6, 32, false, true};
    case BlockType::kIQ4_NL:
      return {32, 32, 4, 0, false, false, true};
    case BlockType::kIQ4_XS:
      return {256, 32, 4, 0, false, true, true};
    default:  // Q8_0
      return {32, 32, 8, 0, false, false};
  }
}

struct QuantBlock {
  uint16_t scale = 0;    // Half.
  uint16_t minimum = 0;  // Half.
  std::array<int8_t, 16> sub_scales{};
  std::array<int8_t, 16> sub_minima{};
  std::array<int8_t, 256> quants{};  // In the order of the values; unsigned ones are at most 63.
};

// Takes apart one block of BlockSize(type) bytes. Source of the layouts: the GGUF specification.
QuantBlock ReadQuantBlock(BlockType type, const uint8_t* bytes);

// The values [format.elements] of a block, in float32 as the formula above reads.
void DequantiseBlock(const QuantFormat& format, const QuantBlock& block, float* values);

}  // namespace paceline
