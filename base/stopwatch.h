// Wall time since a moment.
#pragma once

#include <chrono>

namespace paceline {

class Stopwatch {
 public:
  // Milliseconds since construction or the last call of Lap.
  double Lap() {
    const auto now = Clock::now();
    const std::chrono::duration<double, std::milli> elapsed = now - start_;
    start_ = now;
    return elapsed.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace paceline
