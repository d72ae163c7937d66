// Chat prompts: which family a model's template belongs to, and its rendering to token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/tokenizer.h"

namespace paceline {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct ChatFamily;  // A row of the table in chat_template.cc.

// A recognised template. Control tokens come from the template alone: message content is encoded as
// plain text, whatever it contains. So does the begin token: do not pass the ids to AddBos.
//
// Families are data: chatml, qwen, llama3, mistral (three spacings) and gemma. The template's
// program is not run: tools and other special treatment in it have no effect.
class ChatTemplate {
 public:
  // How a prompt ends.
  enum class Ending {
    kClosed,    // Behind the last message.
    kNewTurn,   // With the header of the assistant's turn.
    kContinue,  // Inside the last message, the assistant's, which goes on.
  };

  // Recognises the template by what it contains. kUnimplemented, naming --raw and --chat-template,
  // for an unknown one, or one with a control token that its family does not have; kNotFound,
  // naming them too, if the file has none.
  static absl::StatusOr<ChatTemplate> Recognise(const TokenizerSpec& spec);

  // The family of that name, whatever the file says. kInvalidArgument listing the names, or naming
  // a mark of the family that the vocabulary lacks.
  static absl::StatusOr<ChatTemplate> OfFamily(std::string_view name, const TokenizerSpec& spec);

  // Ids of the conversation, with the default system message if the first message is not a system
  // message. `tokenizer` is of the spec that was recognised. kInvalidArgument for an unknown role,
  // no message, or kContinue where the last message is not the assistant's.
  absl::StatusOr<std::vector<int32_t>> Render(const Tokenizer& tokenizer,
                                              const std::vector<ChatMessage>& messages,
                                              Ending ending = Ending::kNewTurn) const;

  // The same as text, as the template's author would write it. To be read, not to be encoded.
  std::string RenderText(const std::vector<ChatMessage>& messages,
                         Ending ending = Ending::kNewTurn) const;

  std::string family() const;

 private:
  // A stretch of the prompt: a mark of the template, or text.
  struct Part {
    std::string text;
    std::optional<int32_t> mark;  // Its id.
  };

  ChatTemplate() = default;
  static absl::StatusOr<ChatTemplate> Make(const ChatFamily& family, const TokenizerSpec& spec);
  std::vector<ChatMessage> WithSystem(const std::vector<ChatMessage>& messages) const;
  std::vector<Part> Parts(const std::vector<ChatMessage>& messages, Ending ending) const;
  void AddWrapper(std::string_view wrapper, std::vector<Part>& parts) const;

  const ChatFamily* family_ = nullptr;
  std::string default_system_;  // Empty if there is none.
  std::string system_prefix_;   // In front of every system text.
  std::vector<Part> marks_;     // Of the family, those that the vocabulary has.
  std::optional<Part> begin_;   // If the prompt begins with the begin token.
};

}  // namespace paceline
