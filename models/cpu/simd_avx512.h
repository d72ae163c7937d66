// The kernels' vector operations with the registers and instructions of AVX-512, on vectors of 256
// bits: twice the registers, for twice the sums. To be included by files compiled for
// AVX-512 BW and VL.
#pragma once

#include "models/cpu/simd_avx2.h"

namespace paceline::cpu {

struct Avx512 : Avx2 {
  static constexpr int kSumsTogether = 8;
  static constexpr int kHeadsTogether = 12;
};

}  // namespace paceline::cpu
