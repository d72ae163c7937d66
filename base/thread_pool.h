// Threads that stay, for work that comes in short regions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace paceline {

// Waits for all threads of a group, over and over. A waiting thread spins for a few microseconds,
// the length of a region's imbalance, then sleeps: where others use the processors too, a thread
// that spins keeps the one it waits for from running.
class Barrier {
 public:
  explicit Barrier(int32_t num_threads) : num_threads_(num_threads) {}

  // Returns once all threads have called it; what each wrote before is seen by all.
  void Wait();

 private:
  const int32_t num_threads_;
  std::atomic<int32_t> arrived_{0};
  std::atomic<uint32_t> round_{0};
};

// `num_threads` workers, the caller of Run being the first of them. Not thread-safe: one Run at a
// time.
class ThreadPool {
 public:
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return static_cast<int32_t>(threads_.size()) + 1; }

  // Runs task(thread) once on each thread, 0 .. num_threads - 1, and returns when all are done. The
  // task may call Wait: regions of one task are separated by it.
  void Run(const std::function<void(int32_t)>& task);
  void Wait() { barrier_.Wait(); }

 private:
  void Work(int32_t thread);

  const std::function<void(int32_t)>* task_ = nullptr;
  bool stop_ = false;
  Barrier start_;
  Barrier barrier_;
  std::vector<std::thread> threads_;
};

// The `part`-th of `num_parts` nearly equal ranges of [0, count), every bound a multiple of `unit`.
std::pair<int64_t, int64_t> PartOf(int64_t count, int64_t part, int64_t num_parts,
                                   int64_t unit = 1);

}  // namespace paceline
