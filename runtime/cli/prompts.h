// Prompts from options, standard input and files, and their token ids.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/chat_template.h"
#include "models/tokenizer.h"
#include "runtime/cli/options.h"

namespace paceline::cli {

struct Prompt {
  std::string text;
  std::optional<std::vector<int32_t>> ids;  // Given as ids: `text` is not used.
  std::string origin;                       // "FILE:12", or "--prompt".
  std::string category;                     // Empty if the file says none.
  nlohmann::json question_id;               // Null if the file says none.
};

// One line of a prompt file: a JSON string, or an object with `prompt` or `turns`. kInvalidArgument
// naming `origin` for anything else.
absl::StatusOr<Prompt> ParsePromptLine(const std::string& line, const std::string& origin);

// The prompts the options ask for, in order; at least one. kInvalidArgument naming file and line of
// a malformed one; kNotFound for a file that cannot be read.
absl::StatusOr<std::vector<Prompt>> ReadPrompts(const GenerateOptions& options);

// All of standard input.
std::string ReadStandardInput();

// Wraps prompts as the options ask: chat template or raw text.
class PromptEncoder {
 public:
  // kUnimplemented if the template is not known, kInvalidArgument if --chat-template does not fit,
  // kNotFound if there is none and a chat is asked for. Without a template and without --chat or
  // --raw the prompt is raw text; notice() then says so.
  static absl::StatusOr<PromptEncoder> Create(const GenerateOptions& options,
                                              const Tokenizer& tokenizer);

  absl::StatusOr<std::vector<int32_t>> Encode(const Prompt& prompt) const;

  const std::string& notice() const { return notice_; }

 private:
  PromptEncoder(const Tokenizer& tokenizer, const GenerateOptions& options)
      : tokenizer_(tokenizer), system_(options.system), prefill_(options.prefill) {}

  const Tokenizer& tokenizer_;
  std::string system_;
  std::string prefill_;
  std::optional<ChatTemplate> chat_;
  std::string notice_;
};

}  // namespace paceline::cli
