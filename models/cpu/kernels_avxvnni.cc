// Compiled with -mavxvnni and those of AVX2; called only where the
// processor has all of them.
#include "models/cpu/kernels_inl.h"
#include "models/cpu/simd_vnni.h"

namespace paceline::cpu {

const Kernels& AvxVnniKernels() {
  static constexpr Kernels kKernels = MakeKernels<Vnni<16>>("avxvnni");
  return kKernels;
}

}  // namespace paceline::cpu
