#include "models/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline::cpu {
namespace {

constexpr int64_t kAlignment = 64;

// Where some bits of a quant lie in its unit.
struct Place {
  int64_t byte;
  int64_t shift;
};

// Of input `i` of a row: its one, two, four or eight bits among those of the unit, 8 / bits groups
// of four inputs to a part of 32 bytes. Groups of a part follow each other from the low bits up.
Place PlaceOf(int bits, int64_t i, int64_t row) {
  const int64_t groups = 8 / bits;
  return {(i / 4 / groups * kHalfRows + row) * 4 + i % 4, i / 4 % groups * bits};
}

// Lower bits come first, upper ones behind them.
int LowerBits(int bits) { return bits == 8 ? 8 : bits >= 4 ? 4 : 2; }
int64_t UpperBegin(int bits) { return kHalfRows * kBlock * LowerBits(bits) / 8; }

void PutQuant(int bits, int quant, int64_t i, int64_t row, uint8_t* unit) {
  const int lower = LowerBits(bits);
  const auto put = [&](int part, const Place& place, uint8_t* bytes) {
    bytes[place.byte] |= static_cast<uint8_t>(part << place.shift);
  };
  put(quant & ((1 << lower) - 1), PlaceOf(lower, i, row), unit);
  if (bits > lower) put(quant >> lower, PlaceOf(bits - lower, i, row), unit + UpperBegin(bits));
}

int GetQuant(int bits, const uint8_t* unit, int64_t i, int64_t row) {
  const int lower = LowerBits(bits);
  const auto get = [&](int part_bits, const uint8_t* bytes) {
    const Place place = PlaceOf(part_bits, i, row);
    return bytes[place.byte] >> place.shift & ((1 << part_bits) - 1);
  };
  if (bits == 8) return static_cast<int8_t>(get(8, unit));
  const int quant = get(lower, unit);
  return bits == lower ? quant : quant | get(bits - lower, unit + UpperBegin(bits)) << lower;
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

// A format without a kernel.
absl::StatusOr<PackedMatrix> PackAsF32(const TensorView& tensor) {
  std::vector<float> values(tensor.num_elements());
  PACELINE_RETURN_IF_ERROR(Dequantise(tensor.type, tensor.bytes, std::span<float>(values)));
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return PackedMatrix::Pack(
      {tensor.name, tensor.shape, BlockType::kF32, {bytes, values.size() * sizeof(float)}});
}

}  // namespace

absl::StatusOr<PackedMatrix> PackedMatrix::Pack(const TensorView& tensor) {
  if (PackedType(tensor.type) != tensor.type) return PackAsF32(tensor);
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
