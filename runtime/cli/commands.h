// The subcommands; each returns the exit code of the process.
#pragma once

#include <string>

#include "runtime/cli/options.h"

namespace paceline::cli {

// Runs the prompts and prints text or JSON. 0, 1, 2, or 130 after Ctrl-C.
int RunGenerate(GenerateOptions options);

// Plain decoding against the draft, in turn on the same prompts.
int RunBench(BenchOptions options);

// Passes of 1 to 32 rows beside the machine's limits.
int RunBenchPasses(BenchOptions options);

// Rows of the fast engine against those of the reference engine.
int RunCompare(CompareOptions options);

struct InspectOptions {
  std::string file;      // Empty with `machine`.
  bool machine = false;  // The machine in place of a file.
  bool json = false;
};
int RunInspect(const InspectOptions& options);

// Which settings are exact under which rule, and which are refused.
int RunMatrix(bool markdown);

// Models that the scripts can install, and what lies in the cache folder.
int RunModels(bool json);

struct TokenizeOptions {
  std::string model;
  std::string text;  // "-" reads standard input.
  bool ids_only = false;
  bool no_specials = false;
  bool json = false;
};
int RunTokenize(TokenizeOptions options);

struct SliceOptions {
  int32_t layers = 0;
  std::string in;
  std::string out;
};
int RunSlice(const SliceOptions& options);

}  // namespace paceline::cli
