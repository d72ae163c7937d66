#include "base/thread_pool.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

void Barrier::Wait() {
  const uint32_t round = round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  for (int i = 0; i < kSpins; ++i) {
    if (round_.load(std::memory_order_acquire) != round) return;
    Pause();
  }
  round_.wait(round, std::memory_order_acquire);
}

ThreadPool::ThreadPool(int32_t num_threads)
    : start_(std::max(num_threads, 1)), barrier_(std::max(num_threads, 1)) {
  for (int32_t thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this, thread] { Work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  start_.Wait();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(const std::function<void(int32_t)>& task) {
  task_ = &task;
  start_.Wait();
  task(0);
  barrier_.Wait();
}

void ThreadPool::Work(int32_t thread) {
  for (;;) {
    start_.Wait();
    if (stop_) return;
    (*task_)(thread);
    barrier_.Wait();
  }
}

std::pair<int64_t, int64_t> PartOf(int64_t count, int64_t part, int64_t num_parts, int64_t unit) {
  const int64_t units = (count + unit - 1) / unit;
  return {std::min(count, units * part / num_parts * unit),
          std::min(count, units * (part + 1) / num_parts * unit)};
}

}  // namespace paceline
