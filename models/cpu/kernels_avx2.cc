// Compiled with -mavx2 -mfma -mf16c; called only where the processor has all three.
#include "models/cpu/kernels_inl.h"
#include "models/cpu/simd_avx2.h"

namespace paceline::cpu {

const Kernels& Avx2Kernels() {
  static constexpr Kernels kKernels = MakeKernels<Avx2>("avx2");
  return kKernels;
}

}  // namespace paceline::cpu
