// The vector operations that the kernels are written in, as plain loops: for any machine, and what
// every other instruction set is tested against.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "models/block_format.h"

namespace paceline::cpu {

// Eight lanes: the eight output rows of a weight tile, or eight neighbouring values. What another
// instruction set offers in its place has the same members. Integer results are the same in all of
// them; Fma and Round may round differently.
struct Portable {
  struct Floats {
    float lane[8];
  };
  struct Ints {
    int32_t lane[8];
  };
  struct Bytes {
    uint8_t byte[32];  // [8 rows][4 inputs]
  };
  using Sums = Ints;  // Of products with unsigned weights; see DotUnsigned.

  // Rows that share a tile once it is unpacked, and sums that the registers hold: where they hold
  // both halves of a tile, these share the activations.
  static constexpr int kRowsTogether = 2;
  static constexpr int kSumsTogether = 2;
  // Heads whose scores and weighted values, two vectors each, are summed at a time.
  static constexpr int kHeadsTogether = 4;
  // Groups of four inputs whose products fit Sums, for weights of so many bits.
  static constexpr int kGroupsInSum[9] = {8, 8, 8, 8, 8, 8, 8, 8, 8};
  // Whether signed weights are raised by 128 and multiplied as unsigned ones.
  static constexpr bool kSignedAsUnsigned = false;

  template <typename Function>
  static Floats Each(Function function) {
    Floats result;
    for (int i = 0; i < 8; ++i) result.lane[i] = function(i);
    return result;
  }

  static Floats Set(float value) {
    return Each([&](int) { return value; });
  }
  static Floats Load(const float* from) {
    return Each([&](int i) { return from[i]; });
  }
  static void Store(float* to, const Floats& x) { std::memcpy(to, x.lane, sizeof x.lane); }
  static Floats LoadHalf(const uint16_t* from) {
    return Each([&](int i) { return HalfToFloat(from[i]); });
  }
  static void StoreHalf(uint16_t* to, const Floats& x) {
    for (int i = 0; i < 8; ++i) to[i] = FloatToHalf(x.lane[i]);
  }
  static Floats LoadInt8(const int8_t* from) {
    return Each([&](int i) { return static_cast<float>(from[i]); });
  }
  static Floats LoadBrain(const uint16_t* from) {
    return Each([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    });
  }

  static Floats Add(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] + y.lane[i]; });
  }
  static Floats Subtract(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] - y.lane[i]; });
  }
  static Floats Multiply(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] * y.lane[i]; });
  }
  static Floats Divide(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] / y.lane[i]; });
  }
  // x * y + z, here rounded twice.
  static Floats Fma(const Floats& x, const Floats& y, const Floats& z) {
    return Each([&](int i) { return x.lane[i] * y.lane[i] + z.lane[i]; });
  }
  static Floats Max(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] > y.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  static Floats Min(const Floats& x, const Floats& y) {
    return Each([&](int i) { return x.lane[i] < y.lane[i] ? x.lane[i] : y.lane[i]; });
  }
  static Floats Magnitude(const Floats& x) {
    return Each([&](int i) { return std::fabs(x.lane[i]); });
  }
  // To the nearest integer, ties to even; |x| below 2^22.
  static Floats Round(const Floats& x) {
    return Each([&](int i) { return (x.lane[i] + 0x1.8p23f) - 0x1.8p23f; });
  }
  // 2^x of integers in [-126, 127].
  static Floats PowerOfTwo(const Floats& x) {
    return Each([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(x.lane[i]) + 127) << 23;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    });
  }
  static Floats ToFloat(const Ints& x) {
    return Each([&](int i) { return static_cast<float>(x.lane[i]); });
  }
  // To int8; integers in [-127, 127].
  static void StoreInt8(int8_t* to, const Floats& x) {
    for (int i = 0; i < 8; ++i) to[i] = static_cast<int8_t>(x.lane[i]);
  }

  static Ints ZeroInts() { return {}; }
  static Bytes LoadBytes(const uint8_t* from) {
    Bytes bytes;
    std::memcpy(bytes.byte, from, sizeof bytes.byte);
    return bytes;
  }
  static Bytes LowNibbles(Bytes bytes) {
    for (uint8_t& byte : bytes.byte) byte &= 15;
    return bytes;
  }
  static Bytes HighNibbles(Bytes bytes) {
    for (uint8_t& byte : bytes.byte) byte >>= 4;
    return bytes;
  }
  // Two bits of every byte, from bit `kFirst` on.
  template <int kFirst>
  static Bytes Pairs(Bytes bytes) {
    for (uint8_t& byte : bytes.byte) byte = byte >> kFirst & 3;
    return bytes;
  }
  // `low` with `kBits` (1 or 2) bits of every byte of `upper`, from bit `kFirst` on, at bit `kTo`.
  template <int kFirst, int kBits, int kTo>
  static Bytes WithUpperBits(Bytes low, const Bytes& upper) {
    for (int i = 0; i < 32; ++i) {
      low.byte[i] |= (upper.byte[i] >> kFirst & ((1 << kBits) - 1)) << kTo;
    }
    return low;
  }
  // What nibbles stand for in a table of 16.
  static Bytes LookUp(const int8_t* table, Bytes nibbles) {
    for (uint8_t& byte : nibbles.byte) byte = static_cast<uint8_t>(table[byte]);
    return nibbles;
  }

  // Adds to each row the four products of unsigned weights with four activations.
  static Sums ZeroSums() { return {}; }
  static Sums DotUnsigned(Sums sums, const Bytes& weights, const int8_t* four) {
    for (int row = 0; row < 8; ++row) {
      for (int i = 0; i < 4; ++i) sums.lane[row] += weights.byte[row * 4 + i] * four[i];
    }
    return sums;
  }
  static Ints Widen(const Sums& sums) { return sums; }
  static Ints Plus(Ints x, const Ints& y) {
    for (int i = 0; i < 8; ++i) x.lane[i] += y.lane[i];
    return x;
  }
  // The same for signed weights.
  static Ints DotSigned(Ints sums, const Bytes& weights, const int8_t* four) {
    for (int row = 0; row < 8; ++row) {
      for (int i = 0; i < 4; ++i) {
        sums.lane[row] += static_cast<int8_t>(weights.byte[row * 4 + i]) * four[i];
      }
    }
    return sums;
  }
};

}  // namespace paceline::cpu
