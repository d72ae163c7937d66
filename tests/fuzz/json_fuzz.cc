// Lines of a prompt file: whatever they hold is a prompt or a one-line error that names the line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/cli/prompts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string line(reinterpret_cast<const char*>(data), size);
  const auto prompt = paceline::cli::ParsePromptLine(line, "FILE:1");
  if (prompt.ok()) return 0;
  const std::string message(prompt.status().message());
  if (message.find("FILE:1") != 0 || message.find('\n') != std::string::npos) std::abort();
  return 0;
}
