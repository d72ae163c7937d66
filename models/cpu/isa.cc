#include "models/cpu/isa.h"

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace paceline::cpu {
namespace {

#if defined(__x86_64__)
// clang 14 knows no name for it in __builtin_cpu_supports.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

}  // namespace

std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> kernels;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c()) {
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
