// The kernels' vector operations with VNNI: four products and their sum in one instruction, in 32 bits.
// To be included by files compiled for AVX-512 VNNI and VL, or for AVX-VNNI.
#pragma once

#include "models/cpu/simd_avx2.h"

namespace paceline::cpu {

// With the 32 registers of AVX-512, or with 16.
template <int kRegisters>
struct Vnni : Avx2 {
  using Sums = Ints;

  static constexpr int kRowsTogether = kRegisters == 32 ? 6 : Avx2::kRowsTogether;
  static constexpr int kSumsTogether = kRegisters == 32 ? 12 : Avx2::kSumsTogether;
  static constexpr int kHeadsTogether = kRegisters == 32 ? 12 : Avx2::kHeadsTogether;
  static constexpr int kGroupsInSum[9] = {8, 8, 8, 8, 8, 8, 8, 8, 8};
  static constexpr bool kSignedAsUnsigned = true;

  static Bytes Raised(Bytes weights) { return _mm256_xor_si256(weights, _mm256_set1_epi8(-128)); }
  static Sums DotUnsigned(Sums sums, Bytes weights, const int8_t* four) {
#if defined(__AVX512VNNI__)
    return _mm256_dpbusd_epi32(sums, weights, Four(four));
#else
    return _mm256_dpbusd_avx_epi32(sums, weights, Four(four));
#endif
  }
  static Ints Widen(Sums sums) { return sums; }
};

}  // namespace paceline::cpu
