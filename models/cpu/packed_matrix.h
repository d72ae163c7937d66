// Weight matrices in the order in which the kernels read them.
//
// Sixteen output rows make a tile, eight of them a half. A tile's blocks follow each other along the
// inputs, the two halves of each side by side, so that a pass reads the matrix once from its first
// byte to its last. Float formats are values [inputs][16 rows]. Quantised formats keep their
// precision; a block of half a tile is
//
//   scales half[8]; minima half[8] if the format has any
//   sub-scales int8[runs][8], sub-minima int8[runs][8] if it has any
//   quants, for each 32 inputs:
//     2, 3 bits      uint8[2][8 rows][4]: bits 2j and 2j + 1 of byte i of part p are the lower two of
//                    input 16p + 4j + i
//     4, 5, 6 bits   uint8[4][8 rows][4]: byte i of part p holds the low nibbles of input 8p + i
//                    (low) and of input 8p + 4 + i (high)
//     3, 5 bits      then uint8[8 rows][4]: bit j of byte i is the upper bit of input 4j + i
//     6 bits         then uint8[2][8 rows][4]: its upper two, as the lower two of 2 bits
//     8 bits         int8[8][8 rows][4]: byte i of group g is input 4g + i
//
// Rows beyond the last are zero. Q8_K has no kernel of its own: it is packed as F32.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "models/block_format.h"
#include "models/quant_block.h"
#include "models/weight_source.h"

namespace paceline::cpu {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kHalves = 2;
inline constexpr int64_t kHalfRows = kTileRows / kHalves;
inline constexpr int64_t kBlock = 32;  // Inputs that share a scale of the activations.

// Where the parts of a packed block of half a tile begin, in bytes; quantised formats.
struct PackedLayout {
  int64_t minima;
  int64_t sub_scales;
  int64_t sub_minima;
  int64_t quants;
  int64_t unit_bytes;  // Of the quants of 32 inputs.
  int64_t bytes;       // Of the block.
};

constexpr PackedLayout PackedLayoutOf(const QuantFormat& format) {
  PackedLayout layout{};
  layout.minima = 2 * kHalfRows;
  layout.sub_scales = layout.minima + (format.has_minimum ? 2 * kHalfRows : 0);
  const int64_t subs = format.has_sub_scales ? format.elements / format.run * kHalfRows : 0;
  layout.sub_minima = layout.sub_scales + subs;
  layout.quants = layout.sub_minima + (format.has_minimum ? subs : 0);
  layout.unit_bytes = kHalfRows * kBlock * format.bits / 8;
  layout.bytes = layout.quants + format.elements / kBlock * layout.unit_bytes;
  return layout;
}

// The format that matrices of `type` are packed in: itself, unless it lacks a kernel.
constexpr BlockType PackedType(BlockType type) {
  return type == BlockType::kQ8_K ? BlockType::kF32 : type;
}

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Packs a matrix [rows, columns]; copies, `tensor` need not outlive it.
  // Errors: kResourceExhausted (memory).
  static absl::StatusOr<PackedMatrix> Pack(const TensorView& tensor);

  BlockType type() const { return type_; }  // As packed; see PackedType.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t num_tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  int64_t tile_bytes() const { return tile_bytes_; }
  int64_t bytes() const { return num_tiles() * tile_bytes_; }
  const uint8_t* Tile(int64_t tile) const { return data_.get() + tile * tile_bytes_; }

  // Writes row `row` as float32 [columns]: the very values that Dequantise gives.
  void Unpack(int64_t row, float* values) const;

 private:
  struct Free {
    void operator()(uint8_t* data) const { std::free(data); }
  };

  BlockType type_ = BlockType::kF32;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t tile_bytes_ = 0;
  std::unique_ptr<uint8_t[], Free> data_;
};

}  // namespace paceline::cpu
