#include "models/cpu/isa.h"

#include "absl/strings/str_cat.h"

namespace paceline::cpu {

std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    kernels.push_back(&Avx2Kernels());
  }
#endif
  kernels.push_back(&PortableKernels());
  return kernels;
}

absl::StatusOr<const Kernels*> KernelsNamed(const std::string& name) {
  std::string names;
  for (const Kernels* kernels : RunnableKernels()) {
    if (name.empty() || name == kernels->name) return kernels;
    absl::StrAppend(&names, names.empty() ? "" : ", ", kernels->name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("isa: expected one of ", names, " on this machine, got ", name));
}

}  // namespace paceline::cpu
