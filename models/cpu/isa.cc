#include "models/cpu/isa.h"

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace paceline::cpu {
namespace {

#if defined(__x86_64__)
// What clang 14 knows no name for in __builtin_cpu_supports.
bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool HasAvxVnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}
#endif

}  // namespace

// The best first.
std::vector<const Kernels*> RunnableKernels() {
  std::vector<const Kernels*> kernels;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512vnni")) kernels.push_back(&Avx512VnniKernels());
  if (avx2 && HasAvxVnni()) kernels.push_back(&AvxVnniKernels());
  if (avx512) kernels.push_back(&Avx512BwKernels());
  if (avx2) kernels.push_back(&Avx2Kernels());
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
