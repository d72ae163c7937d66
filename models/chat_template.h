// Chat prompts: which family a model's template belongs to, and its rendering to token ids.
#pragma once

#include <cstdint>
#include <optional>
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
// plain text, whatever it contains. So does the begin token: do not pass the ids to AddBos.
//
// One family is known, ChatML ("<|im_start|>ROLE\nCONTENT<|im_end|>\n"). The template's program is
// not run: tools, trimming and other special treatment in it have no effect.
class ChatTemplate {
 public:
  // Recognises the template by what it contains. kUnimplemented, naming --raw, for an unknown one,
  // or one with a control token that its family does not have; kNotFound, naming --raw, if the file
  // has none.
  static absl::StatusOr<ChatTemplate> Recognise(const TokenizerSpec& spec);

  // Ids of the conversation, with the template's own default system message if the first message is
  // not a system message, ending with the header of the assistant's turn if `generation_prompt`.
  // `tokenizer` is of the spec that was recognised. kInvalidArgument for an unknown role or no
  // message.
  absl::StatusOr<std::vector<int32_t>> Render(const Tokenizer& tokenizer,
                                              const std::vector<ChatMessage>& messages,
                                              bool generation_prompt = true) const;

  // The same as text, as the template's author would write it. To be read, not to be encoded.
  std::string RenderText(const std::vector<ChatMessage>& messages,
                         bool generation_prompt = true) const;

  const std::string& family() const { return family_; }

 private:
  ChatTemplate() = default;
  std::vector<ChatMessage> WithDefaultSystem(const std::vector<ChatMessage>& messages) const;

  std::string family_;
  std::string default_system_;       // Empty if the template has none.
  int32_t start_id_ = 0;             // <|im_start|>
  int32_t end_id_ = 0;               // <|im_end|>
  std::optional<int32_t> begin_id_;  // If the template writes the begin token.
  std::string begin_text_;
};

}  // namespace paceline
