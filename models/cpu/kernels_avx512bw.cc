// Compiled with -mavx512f -mavx512bw -mavx512vl and those of AVX2; called only where the
// processor has all of them.
#include "models/cpu/kernels_inl.h"
#include "models/cpu/simd_avx512.h"

namespace paceline::cpu {

const Kernels& Avx512BwKernels() {
  static constexpr Kernels kKernels = MakeKernels<Avx512>("avx512bw");
  return kKernels;
}

}  // namespace paceline::cpu
