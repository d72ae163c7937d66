#include "models/chat_template.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

using Kind = TokenizerSpec::TokenKind;

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

// Tokenizer makes the turn marks control tokens where a file calls them user-defined.
std::optional<int32_t> TurnMark(const TokenizerSpec& spec, std::string_view text) {
  const size_t count = std::min(spec.tokens.size(), spec.kinds.size());
  for (size_t id = 0; id < count; ++id) {
    const bool is_added = spec.kinds[id] == Kind::kControl || spec.kinds[id] == Kind::kUserDefined;
    if (is_added && spec.tokens[id] == text) {
      return static_cast<int32_t>(id);
    }
  }
  return std::nullopt;
}

// A control token in the template that ChatML does not have, such as a separator after the role.
// Begin, end and padding tokens may be there.
std::optional<std::string> ForeignControlToken(const TokenizerSpec& spec) {
  const size_t count = std::min(spec.tokens.size(), spec.kinds.size());
  for (size_t id = 0; id < count; ++id) {
    const std::string& text = spec.tokens[id];
    const std::optional<int32_t> this_id = static_cast<int32_t>(id);
    if (spec.kinds[id] != Kind::kControl || text.empty()) continue;
    if (text == kStart || text == kEnd) continue;
    if (this_id == spec.bos_id || this_id == spec.eos_id || this_id == spec.pad_id) continue;
    if (spec.chat_template.find(text) != std::string::npos) return text;
  }
  return std::nullopt;
}

// The literal text of a system turn in the template: what it says when no message does. Turns that
// an expression fills in are passed over.
std::string DefaultSystem(std::string_view source) {
  constexpr std::string_view kHeader = "<|im_start|>system";
  for (size_t at = source.find(kHeader); at != std::string_view::npos;
       at = source.find(kHeader, at + 1)) {
    std::string_view turn = source.substr(at + kHeader.size());
    const size_t end = turn.find(kEnd);
    if (end == std::string_view::npos) break;
    turn = turn.substr(0, end);
    const char quote = at > 0 ? source[at - 1] : '\0';
    const bool quoted = quote == '\'' || quote == '"';
    if (turn.find_first_of("{}") != std::string_view::npos) continue;
    if (quoted && turn.find(quote) != std::string_view::npos) continue;
    // A line break is written as itself or escaped.
    std::string text(turn);
    if (quoted) absl::StrReplaceAll({{"\\n", "\n"}}, &text);
    if (text.size() > 1 && text[0] == '\n') return text.substr(1);
  }
  return "";
}

// Whether the template writes the begin token before the first turn.
bool WritesBegin(const TokenizerSpec& spec) {
  if (!spec.bos_id.has_value() || *spec.bos_id < 0 ||
      static_cast<size_t>(*spec.bos_id) >= spec.tokens.size()) {
    return false;
  }
  const std::string& begin = spec.tokens[*spec.bos_id];
  // The first turn's own start token is not a second begin token.
  if (begin.empty() || begin == kStart) return false;
  const std::string_view head =
      std::string_view(spec.chat_template).substr(0, spec.chat_template.find(kStart));
  return head.find("bos_token") != std::string_view::npos ||
         head.find(begin) != std::string_view::npos;
}

absl::Status CheckMessages(const std::vector<ChatMessage>& messages) {
  if (messages.empty()) {
    return absl::InvalidArgumentError("messages: expected at least one, got 0");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(absl::StrCat(
          "messages[", i, "].role: expected system, user or assistant, got '", role, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Recognise(const TokenizerSpec& spec) {
  if (spec.chat_template.empty()) {
    return absl::NotFoundError(
        "chat template: the file has none; use --raw to give the prompt as it is");
  }
  const auto start = TurnMark(spec, kStart);
  const auto end = TurnMark(spec, kEnd);
  if (spec.chat_template.find(kStart) == std::string::npos || !start || !end) {
    return absl::UnimplementedError(
        "chat template: expected ChatML (<|im_start|> and <|im_end|> in the template and the "
        "vocabulary), got another; use --raw to give the prompt as it is");
  }
  if (const auto foreign = ForeignControlToken(spec)) {
    return absl::UnimplementedError(
        absl::StrCat("chat template: expected ChatML, got one that also has ", *foreign,
                     "; use --raw to give the prompt as it is"));
  }
  ChatTemplate result;
  result.family_ = "chatml";
  result.default_system_ = DefaultSystem(spec.chat_template);
  result.start_id_ = *start;
  result.end_id_ = *end;
  if (WritesBegin(spec)) {
    result.begin_id_ = spec.bos_id;
    result.begin_text_ = spec.tokens[*spec.bos_id];
  }
  return result;
}

std::vector<ChatMessage> ChatTemplate::WithDefaultSystem(
    const std::vector<ChatMessage>& messages) const {
  std::vector<ChatMessage> turns = messages;
  if (!default_system_.empty() && !turns.empty() && turns.front().role != "system") {
    turns.insert(turns.begin(), {"system", default_system_});
  }
  return turns;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Render(const Tokenizer& tokenizer,
                                                          const std::vector<ChatMessage>& messages,
                                                          bool generation_prompt) const {
  PACELINE_RETURN_IF_ERROR(CheckMessages(messages));
  std::vector<int32_t> ids;
  const auto append = [&](std::string_view text) -> absl::Status {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<int32_t> more,
                              tokenizer.Encode(text, Tokenizer::Specials::kPlainText));
    ids.insert(ids.end(), more.begin(), more.end());
    return absl::OkStatus();
  };
  if (begin_id_.has_value()) ids.push_back(*begin_id_);
  for (const ChatMessage& turn : WithDefaultSystem(messages)) {
    ids.push_back(start_id_);
    // One stretch of text, as the words of header and content may touch.
    PACELINE_RETURN_IF_ERROR(append(absl::StrCat(turn.role, "\n", turn.content)));
    ids.push_back(end_id_);
    PACELINE_RETURN_IF_ERROR(append("\n"));
  }
  if (generation_prompt) {
    ids.push_back(start_id_);
    PACELINE_RETURN_IF_ERROR(append("assistant\n"));
  }
  return ids;
}

std::string ChatTemplate::RenderText(const std::vector<ChatMessage>& messages,
                                     bool generation_prompt) const {
  std::string text = begin_text_;
  for (const ChatMessage& turn : WithDefaultSystem(messages)) {
    text += std::string(kStart) + turn.role + "\n" + turn.content + std::string(kEnd) + "\n";
  }
  if (generation_prompt) text += std::string(kStart) + "assistant\n";
  return text;
}

}  // namespace paceline
