// Ctrl-C: the first asks the run to end with what it has, the second kills at once.
#pragma once

namespace paceline::cli {

// From now on SIGINT and SIGTERM set a flag.
void CatchInterrupts();

// Whether one of the two signals came.
bool Interrupted();

constexpr int kExitInterrupted = 130;

}  // namespace paceline::cli
