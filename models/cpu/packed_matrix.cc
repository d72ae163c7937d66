#include "models/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace paceline::cpu {
namespace {

constexpr int64_t kAlignment = 64;

// The byte of a unit that holds the low nibble of input `i`, and how far left.
int64_t NibbleByte(int64_t i, int64_t row) { return (i / 8 * kHalfRows + row) * 4 + i % 4; }
int64_t NibbleShift(int64_t i) { return i / 4 % 2 * 4; }
constexpr int64_t kNibbleBytes = kHalfRows * kBlock / 2;

// Of the fifth bit, and of the two upper of six.
int64_t FifthByte(int64_t i, int64_t row) { return kNibbleBytes + row * 4 + i % 4; }
int64_t FifthShift(int64_t i) { return i / 4; }
int64_t UpperByte(int64_t i, int64_t row) {
  return kNibbleBytes + (i / 16 * kHalfRows + row) * 4 + i % 4;
}
int64_t UpperShift(int64_t i) { return i / 4 % 4 * 2; }
int64_t WholeByte(int64_t i, int64_t row) { return (i / 4 * kHalfRows + row) * 4 + i % 4; }

void PutQuant(int bits, int quant, int64_t i, int64_t row, uint8_t* unit) {
  if (bits == 8) {
    unit[WholeByte(i, row)] = static_cast<uint8_t>(quant);
    return;
  }
  unit[NibbleByte(i, row)] |= static_cast<uint8_t>((quant & 15) << NibbleShift(i));
  if (bits == 5) unit[FifthByte(i, row)] |= static_cast<uint8_t>(quant >> 4 << FifthShift(i));
  if (bits == 6) unit[UpperByte(i, row)] |= static_cast<uint8_t>(quant >> 4 << UpperShift(i));
}

int GetQuant(int bits, const uint8_t* unit, int64_t i, int64_t row) {
  if (bits == 8) return static_cast<int8_t>(unit[WholeByte(i, row)]);
  int quant = unit[NibbleByte(i, row)] >> NibbleShift(i) & 15;
  if (bits == 5) quant |= (unit[FifthByte(i, row)] >> FifthShift(i) & 1) << 4;
  if (bits == 6) quant |= (unit[UpperByte(i, row)] >> UpperShift(i) & 3) << 4;
  return quant;
}

void PutBlock(const QuantFormat& format, const QuantBlock& block, int64_t row, uint8_t* to) {
  const PackedLayout layout = PackedLayoutOf(format);
  std::memcpy(to + row * 2, &block.scale, 2);
  if (format.has_minimum) std::memcpy(to + layout.minima + row * 2, &block.minimum, 2);
  for (int64_t run = 0; format.has_sub_scales && run < format.elements / format.run; ++run) {
    const int64_t at = run * kHalfRows + row;
    to[layout.sub_scales + at] = static_cast<uint8_t>(block.sub_scales[run]);
    if (format.has_minimum) {
      to[layout.sub_minima + at] = static_cast<uint8_t>(block.sub_minima[run]);
    }
  }
  for (int64_t i = 0; i < format.elements; ++i) {
    PutQuant(format.bits, block.quants[i], i % kBlock, row,
             to + layout.quants + i / kBlock * layout.unit_bytes);
  }
}

QuantBlock GetBlock(const QuantFormat& format, const uint8_t* from, int64_t row) {
  const PackedLayout layout = PackedLayoutOf(format);
  QuantBlock block;
  std::memcpy(&block.scale, from + row * 2, 2);
  if (format.has_minimum) std::memcpy(&block.minimum, from + layout.minima + row * 2, 2);
  block.sub_scales.fill(1);
  block.sub_minima.fill(1);
  for (int64_t run = 0; format.has_sub_scales && run < format.elements / format.run; ++run) {
    const int64_t at = run * kHalfRows + row;
    block.sub_scales[run] = static_cast<int8_t>(from[layout.sub_scales + at]);
    if (format.has_minimum) {
      block.sub_minima[run] = static_cast<int8_t>(from[layout.sub_minima + at]);
    }
  }
  for (int64_t i = 0; i < format.elements; ++i) {
    block.quants[i] = static_cast<int8_t>(GetQuant(
        format.bits, from + layout.quants + i / kBlock * layout.unit_bytes, i % kBlock, row));
  }
  return block;
}

bool IsFloat(BlockType type) { return BlockElements(type) == 1; }

// Of half a tile.
int64_t PackedBlockBytes(BlockType type) {
  return IsFloat(type) ? kHalfRows * BlockSize(type) : PackedLayoutOf(QuantFormatOf(type)).bytes;
}

}  // namespace

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const TensorView& tensor) {
  PackedMatrix matrix;
  matrix.type_ = tensor.type;
  matrix.columns_ = tensor.shape.back();
  matrix.rows_ = tensor.num_elements() / matrix.columns_;
  const int64_t blocks = matrix.columns_ / BlockElements(tensor.type);
  const int64_t block_bytes = PackedBlockBytes(tensor.type);
  matrix.tile_bytes_ = blocks * kHalves * block_bytes;
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
    uint8_t* to = matrix.data_.get() + row / kTileRows * matrix.tile_bytes_ +
                  row % kTileRows / kHalfRows * block_bytes;
    for (int64_t i = 0; i < blocks; ++i, source += source_bytes, to += kHalves * block_bytes) {
      if (IsFloat(tensor.type)) {
        std::memcpy(to + row % kHalfRows * source_bytes, source, source_bytes);
      } else {
        PutBlock(QuantFormatOf(tensor.type), ReadQuantBlock(tensor.type, source), row % kHalfRows,
                 to);
      }
    }
  }
  return matrix;
}

void PackedMatrix::Unpack(int64_t row, float* values) const {
  const int64_t lane = row % kHalfRows;
  const int64_t step = kHalves * PackedBlockBytes(type_);
  const uint8_t* packed =
      Tile(row / kTileRows) + row % kTileRows / kHalfRows * PackedBlockBytes(type_);
  if (IsFloat(type_)) {
    const int64_t size = BlockSize(type_);
    std::vector<uint8_t> bytes(columns_ * size);
    for (int64_t i = 0; i < columns_; ++i) {
      std::memcpy(bytes.data() + i * size, packed + i * step + lane * size, size);
    }
    Dequantise(type_, bytes, {values, static_cast<size_t>(columns_)}).IgnoreError();
    return;
  }
  const QuantFormat format = QuantFormatOf(type_);
  for (int64_t i = 0; i < columns_; i += format.elements, packed += step) {
    DequantiseBlock(format, GetBlock(format, packed, lane), values + i);
  }
}

}  // namespace paceline::cpu
