// From options and prompts to requests that the engine has agreed to.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cli/options.h"
#include "runtime/cli/prompts.h"
#include "runtime/cli/session.h"
#include "runtime/report.h"

namespace paceline::cli {

// What a subcommand works with after everything was read and checked.
struct Workload {
  GenerateOptions options;  // Resolved.
  std::vector<Prompt> prompts;
  std::vector<GenerationRequest> requests;  // [prompts]
  Session session;
  std::unique_ptr<Engine> engine;
  RunInfo run;
};

// Reads prompts and models and checks every request, before any pass.
//
// Of a single prompt the seed is that of the options; of several each derives its own from it,
// which its answer reports. Errors name the option or the prompt's line.
absl::StatusOr<Workload> Prepare(GenerateOptions options);

}  // namespace paceline::cli
