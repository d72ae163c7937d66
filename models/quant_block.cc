#include "models/quant_block.h"

#include <cstring>

namespace paceline {
namespace {

uint16_t HalfAt(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof half);
  return half;
}

// Nibbles of `count` bytes: the low ones are values 0 .. count - 1, the high ones those that
// follow.
void ReadNibbles(const uint8_t* bytes, int count, int8_t* quants) {
  for (int i = 0; i < count; ++i) {
    quants[i] = static_cast<int8_t>(bytes[i] & 15);
    quants[count + i] = static_cast<int8_t>(bytes[i] >> 4);
  }
}

// Bit i of the word is the fifth bit of value i.
void AddFifthBits(const uint8_t* word, int8_t* quants) {
  for (int i = 0; i < 32; ++i) {
    quants[i] = static_cast<int8_t>(quants[i] | (word[i / 8] >> (i % 8) & 1) << 4);
  }
}

// Eight 6-bit scales and eight 6-bit minima in 12 bytes: four of each in the low bits of the first
// eight; the other four have their low nibbles in the last four bytes and their two highest bits
// above the first ones.
void ReadSixBitScales(const uint8_t* bytes, QuantBlock& block) {
  for (int i = 0; i < 4; ++i) {
    block.sub_scales[i] = static_cast<int8_t>(bytes[i] & 63);
    block.sub_minima[i] = static_cast<int8_t>(bytes[i + 4] & 63);
    block.sub_scales[i + 4] = static_cast<int8_t>((bytes[i + 8] & 15) | bytes[i] >> 6 << 4);
    block.sub_minima[i + 4] = static_cast<int8_t>(bytes[i + 8] >> 4 | bytes[i + 4] >> 6 << 4);
  }
}

// The file subtracts its minima.
uint16_t Negated(uint16_t half) { return half ^ 0x8000; }

// Two halves of 128 values, each of 32 bytes of four pairs of bits.
void ReadPairs(const uint8_t* bytes, QuantBlock& block) {
  for (int i = 0; i < 256; ++i) {
    block.quants[i] = static_cast<int8_t>(bytes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
  }
}

// Sixteen bytes, the scale below and the minimum above.
void Q2K(const uint8_t* bytes, QuantBlock& block) {
  block.scale = HalfAt(bytes + 80);
  block.minimum = Negated(HalfAt(bytes + 82));
  for (int run = 0; run < 16; ++run) {
    block.sub_scales[run] = static_cast<int8_t>(bytes[run] & 15);
    block.sub_minima[run] = static_cast<int8_t>(bytes[run] >> 4);
  }
  ReadPairs(bytes + 16, block);
}

// Bit j of byte i of the first 32 is the third bit of value 32 j + i. The scales, 32 too high, are
// nibbles of eight bytes, with four pairs of upper bits in each of the four bytes behind them.
void Q3K(const uint8_t* bytes, QuantBlock& block) {
  block.scale = HalfAt(bytes + 108);
  const uint8_t* scales = bytes + 96;
  for (int run = 0; run < 16; ++run) {
    const int low = scales[run % 8] >> (run / 8 * 4) & 15;
    const int high = scales[8 + run % 4] >> (run / 4 * 2) & 3;
    block.sub_scales[run] = static_cast<int8_t>((low | high << 4) - 32);
  }
  ReadPairs(bytes + 32, block);
  for (int i = 0; i < 256; ++i) {
    block.quants[i] = static_cast<int8_t>(block.quants[i] | (bytes[i % 32] >> (i / 32) & 1) << 2);
  }
}

// Eight scales, 32 too high: their upper pairs of bits in two bytes, their nibbles in four.
void IQ4XS(const uint8_t* bytes, QuantBlock& block) {
  for (int run = 0; run < 8; ++run) {
    const int low = bytes[4 + run / 2] >> (run % 2 * 4) & 15;
    const int high = bytes[2 + run / 4] >> (run % 4 * 2) & 3;
    block.sub_scales[run] = static_cast<int8_t>((low | high << 4) - 32);
    ReadNibbles(bytes + 8 + 16 * run, 16, block.quants.data() + 32 * run);
  }
}

void Q4K(const uint8_t* bytes, QuantBlock& block) {
  block.minimum = Negated(HalfAt(bytes + 2));
  ReadSixBitScales(bytes + 4, block);
  for (int i = 0; i < 4; ++i) ReadNibbles(bytes + 16 + 32 * i, 32, block.quants.data() + 64 * i);
}

// Bit j of byte i is the fifth bit of value 32 j + i.
void Q5K(const uint8_t* bytes, QuantBlock& block) {
  block.minimum = Negated(HalfAt(bytes + 2));
  ReadSixBitScales(bytes + 4, block);
  for (int i = 0; i < 4; ++i) ReadNibbles(bytes + 48 + 32 * i, 32, block.quants.data() + 64 * i);
  for (int i = 0; i < 256; ++i) {
    block.quants[i] =
        static_cast<int8_t>(block.quants[i] | (bytes[16 + i % 32] >> (i / 32) & 1) << 4);
  }
}

// Two halves of 128 values, each of 64 bytes of nibbles and 32 bytes of upper pairs of bits.
void Q6K(const uint8_t* bytes, QuantBlock& block) {
  block.scale = HalfAt(bytes + 208);
  std::memcpy(block.sub_scales.data(), bytes + 192, 16);
  for (int half = 0; half < 2; ++half) {
    int8_t* quants = block.quants.data() + 128 * half;
    ReadNibbles(bytes + 64 * half, 64, quants);
    for (int i = 0; i < 128; ++i) {
      const int upper = bytes[128 + 32 * half + i % 32] >> (i / 32 * 2) & 3;
      quants[i] = static_cast<int8_t>(quants[i] | upper << 4);
    }
  }
}

}  // namespace

QuantBlock ReadQuantBlock(BlockType type, const uint8_t* bytes) {
  QuantBlock block;
  block.scale = HalfAt(bytes);
  block.sub_scales.fill(1);
  block.sub_minima.fill(1);
  switch (type) {
    case BlockType::kQ4_1:
      block.minimum = HalfAt(bytes + 2);
      ReadNibbles(bytes + 4, 16, block.quants.data());
      break;
    case BlockType::kQ5_0:
      ReadNibbles(bytes + 6, 16, block.quants.data());
      AddFifthBits(bytes + 2, block.quants.data());
      break;
    case BlockType::kQ5_1:
      block.minimum = HalfAt(bytes + 2);
      ReadNibbles(bytes + 8, 16, block.quants.data());
      AddFifthBits(bytes + 4, block.quants.data());
      break;
    case BlockType::kQ8_0:
      std::memcpy(block.quants.data(), bytes + 2, 32);
      break;
    case BlockType::kQ2_K:
      Q2K(bytes, block);
      break;
    case BlockType::kQ3_K:
      Q3K(bytes, block);
      break;
    case BlockType::kQ4_K:
      Q4K(bytes, block);
      break;
    case BlockType::kQ5_K:
      Q5K(bytes, block);
      break;
    case BlockType::kQ6_K:
      Q6K(bytes, block);
      break;
    case BlockType::kIQ4_XS:
      IQ4XS(bytes, block);
      break;
    default:  // Q4_0 and IQ4_NL
      ReadNibbles(bytes + 2, 16, block.quants.data());
  }
  return block;
}

void DequantiseBlock(const QuantFormat& format, const QuantBlock& block, float* values) {
  const float block_scale = HalfToFloat(block.scale);
  const float block_minimum = HalfToFloat(block.minimum);
  for (int64_t i = 0; i < format.elements; ++i) {
    const int64_t run = i / format.run;
    const float scale = block_scale * static_cast<float>(block.sub_scales[run]);
    const int quant = block.quants[i];
    values[i] =
        scale * static_cast<float>(format.has_codebook ? kCodebook[quant] : quant - format.offset);
    if (format.has_minimum) {
      values[i] += block_minimum * static_cast<float>(block.sub_minima[run]);
    }
  }
}

}  // namespace paceline
