#include "models/cpu/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace paceline::cpu {
namespace {

constexpr int64_t kAlignment = 64;

// A block of one row as its file has it: unsigned (or int8) quants, scale and minimum as halves.
struct RowBlock {
  std::array<uint8_t, kBlock> quants;
  std::array<uint8_t, 2> scale;
  std::array<uint8_t, 2> minimum;
};

// Nibbles of GGUF blocks: byte i holds value i low and value 16 + i high.
void ReadNibbles(const uint8_t* nibbles, RowBlock& block) {
  for (int i = 0; i < 16; ++i) {
    block.quants[i] = nibbles[i] & 15;
    block.quants[16 + i] = nibbles[i] >> 4;
  }
}

RowBlock ReadBlock(BlockType type, const uint8_t* bytes) {
  RowBlock block{};
  std::memcpy(block.scale.data(), bytes, 2);
  switch (type) {
    case BlockType::kQ4_0:
      ReadNibbles(bytes + 2, block);
      break;
    case BlockType::kQ4_1:
      std::memcpy(block.minimum.data(), bytes + 2, 2);
      ReadNibbles(bytes + 4, block);
      break;
    default:  // Q8_0
      std::memcpy(block.quants.data(), bytes + 2, kBlock);
  }
  return block;
}

void WriteBlock(BlockType type, const RowBlock& block, int64_t row, uint8_t* to) {
  int64_t scales = 0;
  if (type == BlockType::kQ8_0) {
    for (int64_t i = 0; i < kBlock; ++i) to[(i / 4 * 8 + row) * 4 + i % 4] = block.quants[i];
    scales = 256;
  } else {
    for (int64_t i = 0; i < kBlock; ++i) {
      to[(i / 8 * 8 + row) * 4 + i % 4] |= block.quants[i] << (i / 4 % 2 * 4);
    }
    scales = 128;
  }
  std::memcpy(to + scales + row * 2, block.scale.data(), 2);
  if (type == BlockType::kQ4_1) std::memcpy(to + scales + 16 + row * 2, block.minimum.data(), 2);
}

uint16_t Half(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, 2);
  return half;
}

}  // namespace

int64_t PackedBlockBytes(BlockType type) {
  switch (type) {
    case BlockType::kF32:
      return 32;
    case BlockType::kF16:
    case BlockType::kBF16:
      return 16;
    case BlockType::kQ4_0:
      return 144;
    case BlockType::kQ4_1:
      return 160;
    case BlockType::kQ8_0:
      return 272;
  }
  return 0;
}

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const TensorView& tensor) {
  PackedMatrix matrix;
  matrix.type_ = tensor.type;
  matrix.columns_ = tensor.shape.back();
  matrix.rows_ = tensor.num_elements() / matrix.columns_;
  const int64_t elements = BlockElements(tensor.type);
  const int64_t blocks = matrix.columns_ / elements;
  const int64_t block_bytes = PackedBlockBytes(tensor.type);
  matrix.tile_bytes_ = blocks * block_bytes;
  const int64_t size = (matrix.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  matrix.data_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlignment, size)));
  if (matrix.data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: expected ", size, " bytes for ", tensor.name, ", got none"));
  }
  std::memset(matrix.data_.get(), 0, size);

  const int64_t source_bytes = BlockSize(tensor.type);
  const uint8_t* source = tensor.bytes.data();
  for (int64_t row = 0; row < matrix.rows_; ++row) {
    uint8_t* to = matrix.data_.get() + row / kTileRows * matrix.tile_bytes_;
    for (int64_t i = 0; i < blocks; ++i, source += source_bytes, to += block_bytes) {
      if (elements == 1) {
        std::memcpy(to + row % kTileRows * source_bytes, source, source_bytes);
      } else {
        WriteBlock(tensor.type, ReadBlock(tensor.type, source), row % kTileRows, to);
      }
    }
  }
  return matrix;
}

void PackedMatrix::Unpack(int64_t row, float* values) const {
  const int64_t elements = BlockElements(type_);
  const int64_t lane = row % kTileRows;
  const uint8_t* block = Tile(row / kTileRows);
  for (int64_t first = 0; first < columns_; first += elements, block += PackedBlockBytes(type_)) {
    if (type_ == BlockType::kF32) {
      std::memcpy(values + first, block + lane * 4, 4);
    } else if (type_ == BlockType::kF16) {
      values[first] = HalfToFloat(Half(block + lane * 2));
    } else if (type_ == BlockType::kBF16) {
      const uint32_t bits = static_cast<uint32_t>(Half(block + lane * 2)) << 16;
      std::memcpy(values + first, &bits, 4);
    } else if (type_ == BlockType::kQ8_0) {
      const float scale = HalfToFloat(Half(block + 256 + lane * 2));
      for (int64_t i = 0; i < kBlock; ++i) {
        values[first + i] = scale * static_cast<int8_t>(block[(i / 4 * 8 + lane) * 4 + i % 4]);
      }
    } else {
      const float scale = HalfToFloat(Half(block + 128 + lane * 2));
      const bool has_minimum = type_ == BlockType::kQ4_1;
      const float minimum = has_minimum ? HalfToFloat(Half(block + 144 + lane * 2)) : 0;
      for (int64_t i = 0; i < kBlock; ++i) {
        const int quant = block[(i / 8 * 8 + lane) * 4 + i % 4] >> (i / 4 % 2 * 4) & 15;
        values[first + i] = has_minimum ? scale * quant + minimum : scale * (quant - 8);
      }
    }
  }
}

}  // namespace paceline::cpu
