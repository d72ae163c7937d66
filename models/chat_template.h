// Chat prompts: which family a model's template belongs to, and its rendering to token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/tokenizer.h"

namespace paceline {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// A recognised template. Control tokens come from the template alone: message content is encoded as
// plain text, whatever it contains.
class ChatTemplate {
 public:
  // Recognises the template by what it contains. kUnimplemented, naming --raw, for an unknown one;
  // kNotFound, naming --raw, if the file has none.
  static absl::StatusOr<ChatTemplate> Recognise(const TokenizerSpec& spec);

  // Ids of the conversation, with the template's own default system message if the first message is
  // not a system message, ending with the header of the assistant's turn if `generation_prompt`. kInvalidArgument for an unknown role
  // or no message.
  absl::StatusOr<std::vector<int32_t>> Render(const Tokenizer& tokenizer,
                                              const std::vector<ChatMessage>& messages,
                                              bool generation_prompt = true) const;

  // The same as text, as the template's author would write it.
  std::string RenderText(const std::vector<ChatMessage>& messages, bool generation_prompt = true) const;

  const std::string& family() const { return family_; }

 private:
  std::string family_;
  std::string default_system_;
};

}  // namespace paceline
