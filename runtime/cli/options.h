// Options of the subcommands that generate, and how they are read from the command line.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/model_options.h"
#include "runtime/request.h"

namespace paceline::cli {

struct GenerateOptions {
  std::string model;  // Path; default: environment PACELINE_MODEL.
  ModelOptions engine;

  // Exactly one of the three is given.
  std::optional<std::string> prompt;  // "-" reads stdin.
  std::optional<std::vector<int32_t>> prompt_ids;
  std::string prompts_file;
  bool chat = false;  // Neither: the template if it is known, raw with a notice otherwise.
  bool raw = false;
  std::string chat_template;  // A family's name; empty: as the model's template says.
  std::string prefill;        // How the answer begins.
  std::string system;
  std::string negative_prompt;  // As a prompt is wrapped; empty: none.
  int32_t parallel = 1;  // Sequences a pass, with prompts_file.

  int32_t max_tokens = 256;
  uint32_t num_choices = 1;
  uint32_t best_of = 0;
  std::optional<double> top_p;  // Where given; else sampling has the default, see Resolve.
  SamplingOptions sampling;      // temperature 0.8, top_p 0.95 unless told otherwise.
  std::optional<uint64_t> seed;  // Drawn at random without one.
  std::vector<std::string> stop;
  bool ignore_eos = false;

  std::optional<std::string> draft;
  SpeculationOptions speculation;  // draft is filled in by Resolve.
  std::string draft_model;

  int32_t logprobs = -1;  // Alternatives a token; -1 is off.
  bool json = false;
  std::string trace;  // Path; empty is off.
  bool show_drafts = false;
  bool quiet = false;  // Nothing on stderr but errors.

  GenerateOptions();
};

struct BenchOptions {
  GenerateOptions generate;
  int32_t limit = 0;                // Prompts of a category; 0 takes all.
  std::optional<int32_t> runs;      // Unset: 3 of prompts, 15 of passes.
  bool passes = false;              // Passes by their rows in place of prompts.
  int32_t cached_positions = 128;   // With passes: what is cached before each.
};

struct CompareOptions {
  GenerateOptions generate;
  int32_t positions = 2000;
};

// Declares the options on `app`; they write to `options`, which must outlive the parsing.
void AddGenerateOptions(CLI::App& app, GenerateOptions& options);
void AddBenchOptions(CLI::App& app, BenchOptions& options);
void AddCompareOptions(CLI::App& app, CompareOptions& options);
void AddModelOption(CLI::App& app, std::string& model);

// A whole number with strict reading, for options of other subcommands.
CLI::Option* AddWholeNumber(CLI::App& app, const std::string& names, int32_t& value,
                            const std::string& description);

// Fills in what follows from other options: model, seed, draft source. kInvalidArgument naming two
// options that contradict each other, or one that is missing.
absl::Status Resolve(GenerateOptions& options);
absl::Status ResolveModel(std::string& model);

// `status` with the name of an engine's argument in front of the message, as in `top_p: expected`,
// replaced by its option, as in `--top-p: expected`.
absl::Status NamingOptions(const absl::Status& status);

}  // namespace paceline::cli
