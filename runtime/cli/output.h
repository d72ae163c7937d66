// Standard output and standard error of a subcommand.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace paceline::cli {

// Opens /dev/null where a standard stream is closed, so that no file of ours takes its number, and
// turns SIGPIPE into an error of the write.
void PrepareStreams();

// Writes to standard output at once. After a failure nothing more is written.
class Output {
 public:
  void Write(std::string_view text);

  // False once a write failed: nobody listens, or the disk is full.
  bool usable() const { return error_ == 0; }
  // OK too if the reader closed the pipe, which ends a run quietly.
  absl::Status status() const;

 private:
  int error_ = 0;
};

// A note or progress on standard error.
void Note(std::string_view text);
bool ErrorIsTerminal();

// Reports `status` as `paceline: <message>` and returns the exit code: 0 if it is OK, 2 for bad
// input (options, files, prompts), 1 otherwise.
int ReportStatus(const absl::Status& status);
int ExitCode(const absl::Status& status);

}  // namespace paceline::cli
