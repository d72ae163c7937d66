// Counts what a test program allocates. Replaces operator new: to be included by one file of a
// program.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace paceline::testing {

inline std::atomic<bool> counts_allocations = false;
inline std::atomic<int64_t> num_allocations = 0;

// Allocations that run() makes, on whatever thread.
template <typename Run>
int64_t CountAllocations(Run run) {
  num_allocations = 0;
  counts_allocations = true;
  run();
  counts_allocations = false;
  return num_allocations;
}

}  // namespace paceline::testing

void* operator new(size_t size) {
  if (paceline::testing::counts_allocations) ++paceline::testing::num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
