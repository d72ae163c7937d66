#include "models/cpu/kernels_inl.h"
#include "models/cpu/simd_portable.h"

namespace paceline::cpu {

const Kernels& PortableKernels() {
  static constexpr Kernels kKernels = MakeKernels<Portable>("portable");
  return kKernels;
}

}  // namespace paceline::cpu
