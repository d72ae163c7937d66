#include "runtime/cli/trace_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/report.h"

namespace paceline::cli {

absl::StatusOr<TraceFile> TraceFile::Open(const std::string& path, const std::string& model) {
  std::error_code ignored;
  if (std::filesystem::equivalent(path, model, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace: expected a file of its own, got the model '", path, "'"));
  }
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--trace: cannot write '", path, "': ", std::strerror(errno)));
  }
  return TraceFile(path, file);
}

void TraceFile::Write(uint32_t choice, std::span<const TokenTrace> trace,
                      const Tokenizer& tokenizer) {
  if (error_ != 0) return;
  std::string lines;
  for (const TokenTrace& entry : trace) {
    const std::string_view piece = tokenizer.Piece(entry.token, /*show_control=*/true);
    absl::StrAppend(&lines, JsonText(TraceJson(choice, entry, piece)), "\n");
  }
  const bool written = std::fwrite(lines.data(), 1, lines.size(), file_.get()) == lines.size();
  if (!written || std::fflush(file_.get()) != 0) error_ = errno;
}

absl::Status TraceFile::Close() {
  if (std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("--trace: cannot write '", path_,
                                                   "': ", std::strerror(error_),
                                                   "; what it holds is not complete"));
}

}  // namespace paceline::cli
