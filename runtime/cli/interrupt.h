// Ctrl-C: the first asks the run to end with what it has, the second kills at once.
#pragma once

namespace paceline::cli {

// While it lives, SIGINT and SIGTERM set a flag. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// Whether one of the two signals came.
bool Interrupted();

constexpr int kExitInterrupted = 130;

}  // namespace paceline::cli
