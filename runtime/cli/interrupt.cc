#include "runtime/cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace paceline::cli {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

extern "C" void HandleInterrupt(int) {
  if (g_interrupted.exchange(true)) _exit(kExitInterrupted);
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = HandleInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool Interrupted() { return g_interrupted; }

}  // namespace paceline::cli
