// The kernels, written once in the operations of an instruction set `S` (simd_*.h) and instantiated
// by one file for each. Nothing but templates on S: no function of one instruction set can be taken
// for that of another when the program is linked.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "models/cpu/kernels.h"
#include "models/kv_cache.h"

namespace paceline::cpu {

#define PACELINE_INLINE inline __attribute__((always_inline))

// --- Matrix times rows ---

// A group is four inputs of eight rows, 32 bytes of quants; a unit is the eight groups of 32 inputs.
inline constexpr int kGroups = 8;

// Group `kGroup` of a unit of quants.
template <typename S, int kBits, int kGroup>
PACELINE_INLINE typename S::Bytes LoadGroup(const uint8_t* unit) {
  if constexpr (kBits == 8) {
    return S::LoadBytes(unit + 32 * kGroup);
  } else if constexpr (kBits < 4) {
    const auto pairs = S::template Pairs<kGroup % 4 * 2>(S::LoadBytes(unit + kGroup / 4 * 32));
    if constexpr (kBits == 2) return pairs;
    if constexpr (kBits == 3) {
      return S::template WithUpperBits<kGroup, 1, 2>(pairs, S::LoadBytes(unit + 64));
    }
  } else {
    const auto pair = S::LoadBytes(unit + 32 * (kGroup / 2));
    const auto nibbles = kGroup % 2 == 0 ? S::LowNibbles(pair) : S::HighNibbles(pair);
    if constexpr (kBits == 4) return nibbles;
    if constexpr (kBits == 5) {
      return S::template WithUpperBits<kGroup, 1, 4>(nibbles, S::LoadBytes(unit + 128));
    } else if constexpr (kBits == 6) {
      return S::template WithUpperBits<kGroup % 4 * 2, 2, 4>(
          nibbles, S::LoadBytes(unit + 128 + kGroup / 4 * 32));
    }
  }
}

// Products of one row of activations with quants: sums of as many groups as `Sums` holds, then in 32
// bits.
template <typename S, QuantFormat kFormat>
struct Products {
  static constexpr bool kSigned = kFormat.is_signed() && !S::kSignedAsUnsigned;
  static constexpr int kGroupsInSum = S::kGroupsInSum[kFormat.bits];

  template <int kGroup>
  PACELINE_INLINE void Add(typename S::Bytes weights, const int8_t* four) {
    if constexpr (kSigned) {
      total = S::DotSigned(total, weights, four);
    } else {
      sums = S::DotUnsigned(sums, weights, four);
      if constexpr (kGroupsInSum < kGroups && (kGroup + 1) % kGroupsInSum == 0) {
        total = S::Plus(total, S::Widen(sums));
        sums = S::ZeroSums();
      }
    }
  }
  PACELINE_INLINE typename S::Ints Total() const {
    return kSigned || kGroupsInSum < kGroups ? total : S::Widen(sums);
  }

  typename S::Sums sums = S::ZeroSums();
  typename S::Ints total = S::ZeroInts();
};

// The scales of eight rows for one run of inputs: value = scale * quant + minimum.
template <typename S>
struct RunScales {
  typename S::Floats scale;
  typename S::Floats minimum;
};

// `R` rows from `row` on times `T` halves of a tile of a quantised format, from `half` on.
template <typename S, BlockType kType, int R, int T>
class QuantisedTile {
 public:
  PACELINE_INLINE QuantisedTile(const Activations& x, int64_t row)
      : columns_(x.columns),
        quants_(x.quants + row * x.columns),
        scales_(x.scales + row * (x.columns / kBlock)),
        sums_(x.sums + row * (x.columns / kBlock) * 3) {}

  // `ahead`: how far on lie bytes that will be wanted next.
  PACELINE_INLINE void Run(const uint8_t* tile, int64_t half, int64_t ahead,
                           typename S::Floats (*y)[T]) {
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) y[r][t] = S::Set(0);
    }
    for (int64_t first = 0; first < columns_; tile += kHalves * kLayout.bytes) {
      for (int unit = 0; unit < kFormat.elements / kBlock; ++unit, first += kBlock) {
        for (int t = 0; t < T; ++t) {
          const uint8_t* block = tile + (half + t) * kLayout.bytes;
          if (unit == 0) Prefetch(block + ahead);
          for (int run = 0; run < kRunsInUnit; ++run) {
            run_scales_[t][run] = ScalesOf(block, unit * kRunsInUnit + run);
          }
          quants_of_[t] = block + kLayout.quants + unit * kLayout.unit_bytes;
        }
        Unit(first, y);
      }
    }
  }

 private:
  PACELINE_INLINE static void Prefetch(const uint8_t* block) {
    for (int64_t at = 0; at < kLayout.bytes; at += 64) __builtin_prefetch(block + at);
  }

  static constexpr QuantFormat kFormat = QuantFormatOf(kType);
  static constexpr PackedLayout kLayout = PackedLayoutOf(kFormat);
  static constexpr int kRunsInUnit = kBlock / kFormat.run;
  static constexpr int kGroupsInRun = kGroups / kRunsInUnit;
  // Signed quants that are read as unsigned ones, 128 higher.
  static constexpr int kOffset =
      kFormat.offset + (kFormat.is_signed() && S::kSignedAsUnsigned ? 128 : 0);
  static constexpr bool kHasMinimum = kFormat.has_minimum || kOffset != 0;

  PACELINE_INLINE static RunScales<S> ScalesOf(const uint8_t* block, int run) {
    RunScales<S> scales{S::LoadHalf(reinterpret_cast<const uint16_t*>(block)), S::Set(0)};
    if constexpr (kFormat.has_sub_scales) {
      const auto* sub = reinterpret_cast<const int8_t*>(block + kLayout.sub_scales);
      scales.scale = S::Multiply(scales.scale, S::LoadInt8(sub + run * kHalfRows));
    }
    if constexpr (kFormat.has_minimum) {
      scales.minimum = S::LoadHalf(reinterpret_cast<const uint16_t*>(block + kLayout.minima));
      if constexpr (kFormat.has_sub_scales) {
        const auto* sub = reinterpret_cast<const int8_t*>(block + kLayout.sub_minima);
        scales.minimum = S::Multiply(scales.minimum, S::LoadInt8(sub + run * kHalfRows));
      }
    } else if constexpr (kOffset != 0) {
      scales.minimum = S::Multiply(scales.scale, S::Set(-static_cast<float>(kOffset)));
    }
    return scales;
  }

  PACELINE_INLINE void Unit(int64_t first, typename S::Floats (*y)[T]) {
    [&]<int... kRuns>(std::integer_sequence<int, kRuns...>) __attribute__((always_inline)) {
      (Run<kRuns>(first, y), ...);
    }(std::make_integer_sequence<int, kRunsInUnit>());
  }

  template <int kRun>
  PACELINE_INLINE void Run(int64_t first, typename S::Floats (*y)[T]) {
    Products<S, kFormat> products[R][T];
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
      (Group<kRun * kGroupsInRun + kIndex>(first, products), ...);
    }(std::make_integer_sequence<int, kGroupsInRun>());
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int64_t block = (r * columns_ + first) / kBlock;
      const auto row_scale = S::Set(scales_[block]);
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
        const RunScales<S>& scales = run_scales_[t][kRun];
        const auto scale = S::Multiply(scales.scale, row_scale);
        y[r][t] = S::Fma(S::ToFloat(products[r][t].Total()), scale, y[r][t]);
        if constexpr (kHasMinimum) {
          y[r][t] = S::Fma(scales.minimum, S::Set(Sum<kRun>(block)), y[r][t]);
        }
      }
    }
  }

  template <int kGroup>
  PACELINE_INLINE void Group(int64_t first, Products<S, kFormat> (*products)[T]) {
    typename S::Bytes weights[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
      weights[t] = LoadGroup<S, kFormat.bits, kGroup>(quants_of_[t]);
      if constexpr (kFormat.has_codebook) weights[t] = S::LookUp(kCodebook.data(), weights[t]);
      if constexpr (kFormat.is_signed() && S::kSignedAsUnsigned) weights[t] = S::Raised(weights[t]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int8_t* four = quants_ + r * columns_ + first + 4 * kGroup;
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) products[r][t].template Add<kGroup>(weights[t], four);
    }
  }

  // Of the whole block, or of its first or second half.
  template <int kRun>
  PACELINE_INLINE float Sum(int64_t block) const {
    return sums_[3 * block + (kRunsInUnit == 2 ? 1 + kRun : 0)];
  }

  int64_t columns_;
  const int8_t* quants_;  // [R, columns]
  const float* scales_;   // [R, columns / 32]
  const float* sums_;     // [R, columns / 32, 3]
  RunScales<S> run_scales_[T][kRunsInUnit];
  const uint8_t* quants_of_[T];  // Of the unit at hand.
};

template <typename S>
struct F32 {
  using Value = float;
  static typename S::Floats Load(const float* from) { return S::Load(from); }
};
template <typename S>
struct F16 {
  using Value = uint16_t;
  static typename S::Floats Load(const uint16_t* from) { return S::LoadHalf(from); }
};
template <typename S>
struct BF16 {
  using Value = uint16_t;
  static typename S::Floats Load(const uint16_t* from) { return S::LoadBrain(from); }
};

// The same for floats; one sum over the inputs in their order.
template <typename S, typename Format, int R, int T>
PACELINE_INLINE void FloatTile(const uint8_t* tile, int64_t half, const Activations& x, int64_t row,
                               typename S::Floats (*y)[T]) {
  const auto* weights = reinterpret_cast<const typename Format::Value*>(tile) + half * kHalfRows;
  const float* values = x.values + row * x.columns;
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) y[r][t] = S::Set(0);
  }
  for (int64_t k = 0; k < x.columns; ++k) {
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
      const auto weight = Format::Load(weights + kTileRows * k + kHalfRows * t);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        y[r][t] = S::Fma(weight, S::Set(values[r * x.columns + k]), y[r][t]);
      }
    }
  }
}

template <typename S, BlockType kType>
struct QuantisedKernel {
  template <int R, int T>
  static PACELINE_INLINE void Run(const uint8_t* tile, int64_t half, int64_t ahead,
                                  const Activations& x, int64_t row, typename S::Floats (*y)[T]) {
    QuantisedTile<S, kType, R, T>(x, row).Run(tile, half, ahead, y);
  }
};
template <typename S, typename Format>
struct FloatKernel {
  template <int R, int T>
  static PACELINE_INLINE void Run(const uint8_t* tile, int64_t half, int64_t, const Activations& x,
                                  int64_t row, typename S::Floats (*y)[T]) {
    FloatTile<S, Format, R, T>(tile, half, x, row, y);
  }
};

// The first `columns` lanes, at most all, perhaps none.
template <typename S>
PACELINE_INLINE void StoreLanes(typename S::Floats values, int64_t columns, float* to) {
  if (columns >= kHalfRows) {
    S::Store(to, values);
    return;
  }
  float lanes[kHalfRows];
  S::Store(lanes, values);
  for (int64_t i = 0; i < columns; ++i) to[i] = lanes[i];
}

template <typename S, typename Kernel, int R>
void MultiplyRows(const uint8_t* tile, int64_t tile_bytes, const Activations& x, int64_t row,
                  int64_t columns, float* y, int64_t stride) {
  // The first rows read the tile from memory; the next tile comes while the other rows are at work.
  const int64_t ahead = row == 0 ? tile_bytes : 0;
  constexpr int kTogether = R * kHalves <= S::kSumsTogether ? kHalves : 1;
  for (int64_t half = 0; half < kHalves; half += kTogether) {
    typename S::Floats sums[R][kTogether];
    Kernel::template Run<R, kTogether>(tile, half, ahead, x, row, sums);
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < kTogether; ++t) {
        const int64_t first = (half + t) * kHalfRows;
        StoreLanes<S>(sums[r][t], columns - first, y + (row + r) * stride + first);
      }
    }
  }
}

// MultiplyRows for 1, 2 .. rows.
template <typename S, typename Kernel>
struct RowKernels {
  using Function = void (*)(const uint8_t* tile, int64_t tile_bytes, const Activations& x,
                            int64_t row, int64_t columns, float* y, int64_t stride);
  template <int... kRows>
  static constexpr std::array<Function, sizeof...(kRows)> Table(
      std::integer_sequence<int, kRows...>) {
    return {MultiplyRows<S, Kernel, kRows + 1>...};
  }
  static constexpr auto kTable = Table(std::make_integer_sequence<int, S::kRowsTogether>());
};

// Tiles outermost: each is read from memory once, whatever the number of rows. Rows go in nearly
// equal groups of at most S::kRowsTogether, which share a tile once unpacked.
template <typename S, typename Kernel>
void MultiplyTiles(const PackedMatrix& matrix, const Activations& x, int64_t num_rows,
                   int64_t first_tile, int64_t last_tile, float* y, int64_t stride) {
  for (int64_t t = first_tile; t < last_tile; ++t) {
    int64_t groups = (num_rows + S::kRowsTogether - 1) / S::kRowsTogether;
    for (int64_t row = 0; row < num_rows; --groups) {
      const int64_t rows = (num_rows - row + groups - 1) / groups;
      RowKernels<S, Kernel>::kTable[rows - 1](matrix.Tile(t), matrix.tile_bytes(), x, row,
                                              matrix.rows() - t * kTileRows,
                                              y + (t - first_tile) * kTileRows, stride);
      row += rows;
    }
  }
}

template <typename S>
void Multiply(const PackedMatrix& matrix, const Activations& x, int64_t num_rows,
              int64_t first_tile, int64_t last_tile, float* y, int64_t stride) {
  const auto run = [&](auto kernel) {
    MultiplyTiles<S, decltype(kernel)>(matrix, x, num_rows, first_tile, last_tile, y, stride);
  };
  switch (matrix.type()) {
    case BlockType::kF32:
      return run(FloatKernel<S, F32<S>>());
    case BlockType::kF16:
      return run(FloatKernel<S, F16<S>>());
    case BlockType::kBF16:
      return run(FloatKernel<S, BF16<S>>());
    case BlockType::kQ4_0:
      return run(QuantisedKernel<S, BlockType::kQ4_0>());
    case BlockType::kQ4_1:
      return run(QuantisedKernel<S, BlockType::kQ4_1>());
    case BlockType::kQ5_0:
      return run(QuantisedKernel<S, BlockType::kQ5_0>());
    case BlockType::kQ5_1:
      return run(QuantisedKernel<S, BlockType::kQ5_1>());
    case BlockType::kQ8_0:
      return run(QuantisedKernel<S, BlockType::kQ8_0>());
    case BlockType::kQ2_K:
      return run(QuantisedKernel<S, BlockType::kQ2_K>());
    case BlockType::kQ3_K:
      return run(QuantisedKernel<S, BlockType::kQ3_K>());
    case BlockType::kQ4_K:
      return run(QuantisedKernel<S, BlockType::kQ4_K>());
    case BlockType::kQ5_K:
      return run(QuantisedKernel<S, BlockType::kQ5_K>());
    case BlockType::kQ6_K:
      return run(QuantisedKernel<S, BlockType::kQ6_K>());
    case BlockType::kIQ4_NL:
      return run(QuantisedKernel<S, BlockType::kIQ4_NL>());
    case BlockType::kIQ4_XS:
      return run(QuantisedKernel<S, BlockType::kIQ4_XS>());
    case BlockType::kQ8_K:  // Packed as F32.
      return;
  }
}

// --- Rows ---

// The lanes in one fixed order, whatever the instruction set.
template <typename S>
PACELINE_INLINE float SumOfLanes(typename S::Floats x) {
  float lane[8];
  S::Store(lane, x);
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

template <typename S>
PACELINE_INLINE float LargestLane(typename S::Floats x) {
  float lane[8];
  S::Store(lane, x);
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  return larger(larger(larger(lane[0], lane[1]), larger(lane[2], lane[3])),
                larger(larger(lane[4], lane[5]), larger(lane[6], lane[7])));
}

// exp(x), relative error below 2e-7, for x in [-87, 88]; beyond it the value at the end. Cody and
// Waite's reduction by ln 2, then the Taylor polynomial on [-ln 2 / 2, ln 2 / 2] to the 7th degree.
template <typename S>
PACELINE_INLINE typename S::Floats Exp(typename S::Floats x) {
  x = S::Min(S::Max(x, S::Set(-87.0f)), S::Set(88.0f));
  const auto power = S::Round(S::Multiply(x, S::Set(1.44269504088896341f)));
  auto rest = S::Fma(power, S::Set(-0.693145751953125f), x);
  rest = S::Fma(power, S::Set(-1.428606765330187e-6f), rest);
  auto sum = S::Set(1.0f / 5040);
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    sum = S::Fma(sum, rest, S::Set(factor));
  }
  return S::Multiply(sum, S::PowerOfTwo(power));
}

template <typename S>
void Quantise(const float* values, int64_t columns, int8_t* quants, float* scales, float* sums) {
  const auto nothing = S::Set(0);
  for (int64_t block = 0; block < columns / kBlock; ++block) {
    typename S::Floats x[4];
    auto magnitude = nothing;
    auto zero = nothing;  // NaN where a value is not finite.
    for (int i = 0; i < 4; ++i) {
      x[i] = S::Load(values + block * kBlock + 8 * i);
      magnitude = S::Max(S::Magnitude(x[i]), magnitude);
      zero = S::Fma(x[i], nothing, zero);
    }
    const float largest = LargestLane<S>(magnitude);
    const float check = SumOfLanes<S>(zero);
    const bool usable = check == 0 && largest > 0;
    const auto inverse = S::Set(usable ? 127.0f / largest : 0.0f);
    for (int i = 0; i < 4; ++i) {
      x[i] = usable ? S::Round(S::Multiply(x[i], inverse)) : nothing;
      x[i] = S::Min(S::Max(x[i], S::Set(-127.0f)), S::Set(127.0f));
      S::StoreInt8(quants + block * kBlock + 8 * i, x[i]);
    }
    const float scale = check == 0 ? largest / 127.0f : check;
    const float first = SumOfLanes<S>(S::Add(x[0], x[1]));
    const float second = SumOfLanes<S>(S::Add(x[2], x[3]));
    scales[block] = scale;
    sums[3 * block] = scale * (first + second);
    sums[3 * block + 1] = scale * first;
    sums[3 * block + 2] = scale * second;
  }
}

template <typename S>
void RmsNorm(const float* x, const float* weight, int64_t columns, float epsilon, float* y) {
  auto squares = S::Set(0);
  int64_t i = 0;
  for (; i + 8 <= columns; i += 8) {
    const auto value = S::Load(x + i);
    squares = S::Fma(value, value, squares);
  }
  float sum = SumOfLanes<S>(squares);
  for (; i < columns; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(columns) + epsilon);
  for (i = 0; i + 8 <= columns; i += 8) {
    S::Store(y + i, S::Multiply(S::Multiply(S::Load(x + i), S::Set(factor)), S::Load(weight + i)));
  }
  for (; i < columns; ++i) y[i] = x[i] * factor * weight[i];
}

template <typename S>
PACELINE_INLINE float SumOf(const float* x, int64_t columns) {
  auto sums = S::Set(0);
  int64_t i = 0;
  for (; i + 8 <= columns; i += 8) sums = S::Add(sums, S::Load(x + i));
  float sum = SumOfLanes<S>(sums);
  for (; i < columns; ++i) sum += x[i];
  return sum;
}

template <typename S>
void LayerNorm(const float* x, const float* weight, const float* bias, int64_t columns,
               float epsilon, float* y) {
  const float mean = SumOf<S>(x, columns) / static_cast<float>(columns);
  auto squares = S::Set(0);
  int64_t i = 0;
  for (; i + 8 <= columns; i += 8) {
    const auto value = S::Subtract(S::Load(x + i), S::Set(mean));
    squares = S::Fma(value, value, squares);
  }
  float sum = SumOfLanes<S>(squares);
  for (; i < columns; ++i) sum += (x[i] - mean) * (x[i] - mean);
  const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(columns) + epsilon);
  for (i = 0; i + 8 <= columns; i += 8) {
    const auto value = S::Multiply(S::Subtract(S::Load(x + i), S::Set(mean)), S::Set(factor));
    S::Store(y + i, S::Fma(value, S::Load(weight + i), S::Load(bias + i)));
  }
  for (; i < columns; ++i) y[i] = (x[i] - mean) * factor * weight[i] + bias[i];
}

// x / (1 + exp(-slope)): SiLU for the slope x.
template <typename S>
PACELINE_INLINE typename S::Floats Sigmoidal(typename S::Floats x, typename S::Floats slope) {
  const auto one = S::Set(1);
  return S::Divide(x, S::Add(one, Exp<S>(S::Subtract(S::Set(0), slope))));
}

template <typename S>
struct SiluOf {
  static PACELINE_INLINE typename S::Floats Apply(typename S::Floats x) {
    return Sigmoidal<S>(x, x);
  }
};

template <typename S>
struct GeluOf {
  static PACELINE_INLINE typename S::Floats Apply(typename S::Floats x) {
    constexpr float kTwice = 1.59576912160573f;  // 2 sqrt(2 / pi)
    const auto cubic = S::Fma(S::Multiply(x, x), S::Set(0.044715f * kTwice), S::Set(kTwice));
    return Sigmoidal<S>(x, S::Multiply(x, cubic));
  }
};

template <typename S, typename Function>
void ActivateMultiply(const float* gate, const float* up, int64_t count, float* y) {
  const auto eight = [&](const float* gates, const float* ups) __attribute__((always_inline)) {
    const auto value = Function::Apply(S::Load(gates));
    return ups == nullptr ? value : S::Multiply(value, S::Load(ups));
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) S::Store(y + i, eight(gate + i, up ? up + i : nullptr));
  if (i == count) return;
  float gates[8] = {};
  float ups[8] = {};
  for (int64_t j = i; j < count; ++j) gates[j - i] = gate[j], ups[j - i] = up ? up[j] : 1;
  float products[8];
  S::Store(products, eight(gates, ups));
  for (int64_t j = i; j < count; ++j) y[j] = products[j - i];
}

template <typename S>
void ToHalf(const float* from, int64_t count, uint16_t* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) S::StoreHalf(to + i, S::Load(from + i));
  if (i == count) return;
  float rest[8] = {};
  uint16_t halves[8];
  for (int64_t j = i; j < count; ++j) rest[j - i] = from[j];
  S::StoreHalf(halves, S::Load(rest));
  for (int64_t j = i; j < count; ++j) to[j] = halves[j - i];
}

// --- Attention ---

inline constexpr int64_t kPage = KvCache::kPageSize;
static_assert(kPage == 16 && kAttentionChunk % kPage == 0);

// `R` heads of a chunk, from `first` on; keys and values are read once for all of them.
template <typename S, int R>
class ChunkHeads {
 public:
  ChunkHeads(const AttentionChunk& chunk, int64_t first)
      : chunk_(chunk), heads_(chunk.heads + first) {
    earliest_ = latest_ = heads_[0].first;
    fewest_ = most_ = heads_[0].count;
    for (int r = 1; r < R; ++r) {
      earliest_ = heads_[r].first < earliest_ ? heads_[r].first : earliest_;
      latest_ = heads_[r].first > latest_ ? heads_[r].first : latest_;
      fewest_ = heads_[r].count < fewest_ ? heads_[r].count : fewest_;
      most_ = heads_[r].count > most_ ? heads_[r].count : most_;
    }
  }

  void Attend() {
    for (int64_t d = 0; d < chunk_.head_dim; ++d) {
      for (int r = 0; r < R; ++r) chunk_.queries[d * R + r] = heads_[r].query[d];
    }
    for (int64_t first = earliest_ / kPage * kPage; first < most_; first += kPage) Score(first);
    for (int r = 0; r < R; ++r) Exponentials(r);
    int64_t d = 0;
    for (; d + 16 <= chunk_.head_dim; d += 16) WeighValues(d);
    for (; d < chunk_.head_dim; ++d) {
      for (int r = 0; r < R; ++r) WeighValue(r, d);
    }
  }

 private:
  using Floats = typename S::Floats;

  // Scores of a page's 16 positions: for each position one sum over the dimensions.
  PACELINE_INLINE void Score(int64_t first) {
    const uint16_t* keys = chunk_.keys[first / kPage];
    Floats low[R], high[R];
    for (int r = 0; r < R; ++r) low[r] = high[r] = S::Set(0);
    for (int64_t d = 0; d < chunk_.head_dim; ++d) {
      const auto key_low = S::LoadHalf(keys + d * kPage);
      const auto key_high = S::LoadHalf(keys + d * kPage + 8);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const auto query = S::Set(chunk_.queries[d * R + r]);
        low[r] = S::Fma(query, key_low, low[r]);
        high[r] = S::Fma(query, key_high, high[r]);
      }
    }
    for (int r = 0; r < R; ++r) {
      S::Store(Scores(r) + first, low[r]);
      S::Store(Scores(r) + first + 8, high[r]);
    }
  }

  // Scores become exp(score - largest); those that the head does not see 0.
  void Exponentials(int r) {
    const AttentionHead& head = heads_[r];
    float* scores = Scores(r);
    float largest = scores[head.first];
    for (int64_t i = head.first + 1; i < head.count; ++i) {
      largest = scores[i] > largest ? scores[i] : largest;
    }
    const int64_t begin = head.first / 8 * 8;
    const int64_t end = (head.count + 7) / 8 * 8;
    const auto fill_unseen = [&](float value) {
      for (int64_t i = begin; i < head.first; ++i) scores[i] = value;
      for (int64_t i = head.count; i < end; ++i) scores[i] = value;
    };
    fill_unseen(largest);
    for (int64_t i = begin; i < end; i += 8) {
      S::Store(scores + i, Exp<S>(S::Subtract(S::Load(scores + i), S::Set(largest))));
    }
    fill_unseen(0);
    auto sums = S::Set(0);
    for (int64_t i = begin; i < end; i += 8) sums = S::Add(sums, S::Load(scores + i));
    *head.largest = largest;
    *head.mass = SumOfLanes<S>(sums);
  }

  // Sixteen dimensions from `d` on of the weighted values: for each one sum over the positions. A
  // head does not touch what it does not see, were it only to weigh it with 0.
  PACELINE_INLINE void WeighValues(int64_t d) {
    Floats low[R], high[R];
    for (int r = 0; r < R; ++r) low[r] = high[r] = S::Set(0);
    const auto add = [&](int64_t i, auto&& sees) __attribute__((always_inline)) {
      const uint16_t* value = chunk_.values[i / kPage] + i % kPage * chunk_.head_dim + d;
      const auto value_low = S::LoadHalf(value);
      const auto value_high = S::LoadHalf(value + 8);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        if (!sees(r)) continue;
        const auto weight = S::Set(Scores(r)[i]);
        low[r] = S::Fma(weight, value_low, low[r]);
        high[r] = S::Fma(weight, value_high, high[r]);
      }
    };
    const int64_t shared = latest_ < fewest_ ? latest_ : fewest_;  // Seen by all from here on.
    for (int64_t i = earliest_; i < shared; ++i) add(i, [&](int r) { return Sees(r, i); });
    for (int64_t i = shared; i < fewest_; ++i) add(i, [](int) { return true; });
    for (int64_t i = fewest_; i < most_; ++i) add(i, [&](int r) { return Sees(r, i); });
    for (int r = 0; r < R; ++r) {
      S::Store(heads_[r].weighted + d, low[r]);
      S::Store(heads_[r].weighted + d + 8, high[r]);
    }
  }

  // Head sizes that are no multiple of 16 pay for it: one dimension at a time.
  void WeighValue(int r, int64_t d) {
    float sum = 0;
    for (int64_t i = heads_[r].first; i < heads_[r].count; ++i) {
      sum += Scores(r)[i] * HalfToFloat(chunk_.values[i / kPage][i % kPage * chunk_.head_dim + d]);
    }
    heads_[r].weighted[d] = sum;
  }

  bool Sees(int r, int64_t i) const { return i >= heads_[r].first && i < heads_[r].count; }
  PACELINE_INLINE float* Scores(int r) const { return chunk_.scores + r * kAttentionChunk; }

  const AttentionChunk& chunk_;
  const AttentionHead* heads_;
  int64_t earliest_;  // The first position that any of the heads sees,
  int64_t latest_;    // and the last of their first ones.
  int64_t fewest_;  // Positions that all of the heads see,
  int64_t most_;    // and that any does.
};

template <typename S, int R, int... kFewer>
PACELINE_INLINE void AttendHeads(const AttentionChunk& chunk, int64_t head) {
  if constexpr (R <= S::kHeadsTogether) {
    for (; head + R <= chunk.num_heads; head += R) ChunkHeads<S, R>(chunk, head).Attend();
  }
  if constexpr (sizeof...(kFewer) > 0) AttendHeads<S, kFewer...>(chunk, head);
}

template <typename S>
void Attend(const AttentionChunk& chunk) {
  AttendHeads<S, kHeadsTogether, 6, 4, 3, 2, 1>(chunk, 0);
}

template <typename S>
PACELINE_INLINE float ExpOf(float x) {
  float lanes[8];
  S::Store(lanes, Exp<S>(S::Set(x)));
  return lanes[0];
}

template <typename S>
void Combine(const float* const* weighted, const float* largest, const float* mass,
             int64_t num_chunks, int64_t head_dim, float* y) {
  float top = largest[0];
  for (int64_t c = 1; c < num_chunks; ++c) top = largest[c] > top ? largest[c] : top;
  float total = 0;
  for (int64_t d = 0; d < head_dim; ++d) y[d] = 0;
  for (int64_t c = 0; c < num_chunks; ++c) {
    const float factor = ExpOf<S>(largest[c] - top);
    total += factor * mass[c];
    for (int64_t d = 0; d < head_dim; ++d) y[d] += factor * weighted[c][d];
  }
  const float inverse = 1.0f / total;
  for (int64_t d = 0; d < head_dim; ++d) y[d] *= inverse;
}

template <typename S>
constexpr Kernels MakeKernels(const char* name) {
  return {name,
          Multiply<S>,
          Quantise<S>,
          RmsNorm<S>,
          LayerNorm<S>,
          ActivateMultiply<S, SiluOf<S>>,
          ActivateMultiply<S, GeluOf<S>>,
          Combine<S>,
          ToHalf<S>,
          Attend<S>};
}

#undef PACELINE_INLINE

}  // namespace paceline::cpu
