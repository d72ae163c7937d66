// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512vnni and those of AVX2; called only where the
// processor has all of them.
#include "models/cpu/kernels_inl.h"
#include "models/cpu/simd_vnni.h"

namespace paceline::cpu {

const Kernels& Avx512VnniKernels() {
  static constexpr Kernels kKernels = MakeKernels<Vnni<32>>("avx512vnni");
  return kKernels;
}

}  // namespace paceline::cpu
