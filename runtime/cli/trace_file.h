// The file that --trace writes: a JSON object a line for every judged or emitted token.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "models/tokenizer.h"
#include "verify/rule.h"

namespace paceline::cli {

class TraceFile {
 public:
  // Creates or empties `path`. kInvalidArgument naming it if it cannot be written or is the model.
  static absl::StatusOr<TraceFile> Open(const std::string& path, const std::string& model);

  // Writes the lines of a round and flushes them. Failures are kept for Close.
  void Write(uint32_t choice, std::span<const TokenTrace> trace, const Tokenizer& tokenizer);

  // kResourceExhausted if anything could not be written.
  absl::Status Close();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  TraceFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  int error_ = 0;
};

}  // namespace paceline::cli
