// Weight matrices in the order in which the kernels read them.
//
// Eight output rows make a tile, and a tile's blocks follow each other along the inputs, so that a
// pass reads the matrix once from its first byte to its last. Quantised formats keep their blocks
// of 32 inputs and their own precision:
//
//   Q4_0, Q4_1   quants uint8[4][8 rows][4]: byte i of group g holds input 8g + i in its low
//                nibble and input 8g + 4 + i in its high one
//   Q5_0, Q5_1   the same, then uint8[8 rows][4]: bit j of byte i is the fifth bit of input 4j + i
//   Q8_0         quants int8[8][8 rows][4]
//   all          then scales half[8]; Q4_1 and Q5_1 then minima half[8]
//   F32, F16, BF16   values [inputs][8 rows]
//
// Rows beyond the last are zero.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "models/block_format.h"
#include "models/weight_source.h"

namespace paceline::cpu {

inline constexpr int64_t kTileRows = 8;
inline constexpr int64_t kBlock = 32;  // Inputs of a quantised block.

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Packs a matrix [rows, columns]; copies, `tensor` need not outlive it.
  // Errors: kResourceExhausted (memory).
  static absl::StatusOr<PackedMatrix> Pack(const TensorView& tensor);

  BlockType type() const { return type_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t num_tiles() const { return (rows_ + kTileRows - 1) / kTileRows; }
  int64_t tile_bytes() const { return tile_bytes_; }
  int64_t bytes() const { return num_tiles() * tile_bytes_; }
  const uint8_t* Tile(int64_t tile) const { return data_.get() + tile * tile_bytes_; }

  // Writes row `row` as float32 [columns].
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

// Bytes of a tile's block: 32 inputs of a quantised format, one input of a float format.
int64_t PackedBlockBytes(BlockType type);

}  // namespace paceline::cpu
