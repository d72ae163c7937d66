#include "models/chat_template.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace paceline {

// One kind of templates. Wrappers are what stands around a message, "$" being its content.
struct ChatFamily {
  std::string_view name;
  std::array<std::string_view, 2> evidence;  // A template that contains both is of this family.
  std::array<std::string_view, 5> marks;     // Stretches of the wrappers that are tokens.
  std::string_view system;                   // Empty: the system text goes into a user message.
  std::string_view user;
  std::string_view assistant;
  std::string_view answer;  // The header of the assistant's turn.
  bool begins = false;      // Always with the begin token; else where the template writes it.
  bool trims = false;       // White space around messages is dropped.
  bool system_in_last = false;     // Into the last user message, not the first.
  bool marks_may_be_text = false;  // Old vocabularies lack them.
  std::string_view system_text = "";  // Without a template to say so.
};

namespace {

using Kind = TokenizerSpec::TokenKind;

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kChatMlSystem = "<|im_start|>system\n$<|im_end|>\n";
constexpr std::string_view kChatMlUser = "<|im_start|>user\n$<|im_end|>\n";
constexpr std::string_view kChatMlAssistant = "<|im_start|>assistant\n$<|im_end|>\n";
constexpr std::string_view kChatMlAnswer = "<|im_start|>assistant\n";

// The first row whose evidence fits counts.
constexpr ChatFamily kFamilies[] = {
    {.name = "qwen", .evidence = {kStart, "<tool_call>"}, .marks = {kStart, kEnd},
     .system = kChatMlSystem, .user = kChatMlUser, .assistant = kChatMlAssistant,
     .answer = kChatMlAnswer,
     .system_text = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "chatml", .evidence = {kStart, ""}, .marks = {kStart, kEnd}, .system = kChatMlSystem,
     .user = kChatMlUser, .assistant = kChatMlAssistant, .answer = kChatMlAnswer},
    {.name = "llama3", .evidence = {"<|start_header_id|>", "<|eot_id|>"},
     .marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .system = "<|start_header_id|>system<|end_header_id|>\n\n$<|eot_id|>",
     .user = "<|start_header_id|>user<|end_header_id|>\n\n$<|eot_id|>",
     .assistant = "<|start_header_id|>assistant<|end_header_id|>\n\n$<|eot_id|>",
     .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n", .begins = true, .trims = true},
    {.name = "gemma", .evidence = {"<start_of_turn>", "<end_of_turn>"},
     .marks = {"<start_of_turn>", "<end_of_turn>"}, .system = "",
     .user = "<start_of_turn>user\n$<end_of_turn>\n",
     .assistant = "<start_of_turn>model\n$<end_of_turn>\n", .answer = "<start_of_turn>model\n",
     .begins = true, .trims = true},
    {.name = "mistral-v7", .evidence = {"[SYSTEM_PROMPT]", "[INST]"},
     .marks = {"[INST]", "[/INST]", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
     .system = "[SYSTEM_PROMPT]$[/SYSTEM_PROMPT]", .user = "[INST]$[/INST]", .assistant = "$</s>",
     .answer = "", .begins = true},
    {.name = "mistral-v1", .evidence = {"[INST]", " [/INST]"},
     .marks = {"[INST]", "[/INST]", "</s>"}, .system = "", .user = "[INST] $ [/INST]",
     .assistant = " $</s>", .answer = "", .begins = true, .system_in_last = true,
     .marks_may_be_text = true},
    {.name = "mistral", .evidence = {"[INST]", "[/INST]"}, .marks = {"[INST]", "[/INST]", "</s>"},
     .system = "", .user = "[INST] $[/INST]", .assistant = " $</s>", .answer = "", .begins = true,
     .system_in_last = true},
};

// Of tools, pictures and hidden thoughts: templates name them, plain conversations have none.
constexpr std::string_view kOtherMarks[] = {
    "<tool_call>",       "</tool_call>",      "<tool_response>",  "</tool_response>",
    "<think>",           "</think>",          "<|vision_start|>", "<|vision_end|>",
    "<|image_pad|>",     "<|video_pad|>",     "<|python_tag|>",   "<|eom_id|>",
    "[TOOL_CALLS]",      "[AVAILABLE_TOOLS]", "[TOOL_RESULTS]",   "[/AVAILABLE_TOOLS]",
    "[/TOOL_RESULTS]",   "[IMG]",             "<start_of_image>", "<image_soft_token>",
    "<|begin_of_text|>", "<|end_of_text|>"};

constexpr std::string_view kHint =
    "; use --raw to give the prompt as it is, or --chat-template FAMILY";

std::string FamilyNames() {
  std::string names;
  for (const ChatFamily& family : kFamilies) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(family.name));
  }
  return names;
}

// Tokenizer makes ChatML's marks control tokens where a file calls them user-defined.
std::optional<int32_t> MarkId(const TokenizerSpec& spec, std::string_view text) {
  const size_t count = std::min(spec.tokens.size(), spec.kinds.size());
  for (size_t id = 0; id < count; ++id) {
    const bool is_added = spec.kinds[id] == Kind::kControl || spec.kinds[id] == Kind::kUserDefined;
    if (is_added && spec.tokens[id] == text) return static_cast<int32_t>(id);
  }
  return std::nullopt;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <typename List>
bool Lists(const List& list, std::string_view text) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// A control token in the template that the family does not have, such as a separator after the
// role. Begin, end and padding tokens may be there.
std::optional<std::string> ForeignControlToken(const ChatFamily& family,
                                               const TokenizerSpec& spec) {
  const size_t count = std::min(spec.tokens.size(), spec.kinds.size());
  for (size_t id = 0; id < count; ++id) {
    const std::string& text = spec.tokens[id];
    const std::optional<int32_t> this_id = static_cast<int32_t>(id);
    if (spec.kinds[id] != Kind::kControl || text.empty()) continue;
    if (Lists(family.marks, text) || Lists(kOtherMarks, text)) continue;
    if (this_id == spec.bos_id || this_id == spec.eos_id || this_id == spec.pad_id) continue;
    if (Contains(spec.chat_template, text)) return text;
  }
  return std::nullopt;
}

// The literal text of ChatML's system turn in the template: what it says when no message does. Turns
// that an expression fills in are passed over.
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

// Llama 3.1 and later say so in every system turn; the day is the one that the template falls back
// on, so that a prompt does not change from one day to the next.
constexpr std::string_view kKnowledgeDate = "Cutting Knowledge Date";
constexpr std::string_view kDates =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

// Whether the template writes the begin token before the first turn.
bool WritesBegin(const TokenizerSpec& spec, const std::string& begin, std::string_view first_mark) {
  // The first turn's own start token is not a second begin token.
  if (begin.empty() || begin == first_mark) return false;
  const std::string_view head =
      std::string_view(spec.chat_template).substr(0, spec.chat_template.find(first_mark));
  return Contains(head, "bos_token") || Contains(head, begin);
}

absl::Status CheckMessages(const std::vector<ChatMessage>& messages, ChatTemplate::Ending ending) {
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
  if (ending == ChatTemplate::Ending::kContinue && messages.back().role != "assistant") {
    return absl::InvalidArgumentError(
        absl::StrCat("messages: expected the assistant's last, as it is to go on, got ",
                     messages.back().role, "'s"));
  }
  return absl::OkStatus();
}

std::string_view WrapperOf(const ChatFamily& family, const std::string& role) {
  return role == "system" ? family.system : role == "user" ? family.user : family.assistant;
}

// Families without system turns: the text and a blank line go in front of a user message, or are one
// where there is none.
void PutSystemIntoUser(bool last, std::vector<ChatMessage>& turns) {
  for (size_t i = 0; i < turns.size();) {
    if (turns[i].role != "system") {
      ++i;
      continue;
    }
    const std::string text = turns[i].content;
    turns.erase(turns.begin() + static_cast<int64_t>(i));
    const auto is_user = [](const ChatMessage& turn) { return turn.role == "user"; };
    auto user = std::find_if(turns.begin() + static_cast<int64_t>(i), turns.end(), is_user);
    if (last && user != turns.end()) {
      user = std::find_if(turns.rbegin(), turns.rend(), is_user).base() - 1;
    }
    if (user == turns.end()) {
      turns.insert(turns.begin() + static_cast<int64_t>(i), {"user", text});
    } else if (!text.empty()) {
      user->content = absl::StrCat(text, "\n\n", user->content);
    }
  }
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Make(const ChatFamily& family,
                                                const TokenizerSpec& spec) {
  ChatTemplate result;
  result.family_ = &family;
  for (const std::string_view mark : family.marks) {
    if (mark.empty()) break;
    const std::optional<int32_t> id = MarkId(spec, mark);
    if (id) {
      result.marks_.push_back({std::string(mark), id});
    } else if (!family.marks_may_be_text) {
      return absl::InvalidArgumentError(absl::StrCat("chat template ", std::string(family.name),
                                                     ": expected the token ", std::string(mark),
                                                     " in the vocabulary, got none"));
    }
  }
  const bool has_begin = spec.bos_id.has_value() && *spec.bos_id >= 0 &&
                         static_cast<size_t>(*spec.bos_id) < spec.tokens.size();
  const std::string begin = has_begin ? spec.tokens[*spec.bos_id] : "";
  if (has_begin && (family.begins || WritesBegin(spec, begin, family.marks[0]))) {
    result.begin_ = Part{begin, spec.bos_id};
  }
  if (family.name == "llama3" && Contains(spec.chat_template, kKnowledgeDate)) {
    result.system_prefix_ = kDates;
  }
  return result;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Recognise(const TokenizerSpec& spec) {
  if (spec.chat_template.empty()) {
    return absl::NotFoundError(
        absl::StrCat("chat template: the file has none", std::string(kHint)));
  }
  const auto fits = [&](const ChatFamily& family) {
    return Contains(spec.chat_template, family.evidence[0]) &&
           Contains(spec.chat_template, family.evidence[1]);
  };
  const auto* family = std::find_if(std::begin(kFamilies), std::end(kFamilies), fits);
  if (family == std::end(kFamilies)) {
    return absl::UnimplementedError(absl::StrCat("chat template: expected one of ", FamilyNames(),
                                                 ", got another", std::string(kHint)));
  }
  absl::StatusOr<ChatTemplate> result = Make(*family, spec);
  if (!result.ok()) {
    return absl::UnimplementedError(
        absl::StrCat(result.status().message(), std::string(kHint)));
  }
  if (const auto foreign = ForeignControlToken(*family, spec)) {
    return absl::UnimplementedError(absl::StrCat("chat template: expected ",
                                                 std::string(family->name), ", got one that also has ",
                                                 *foreign, std::string(kHint)));
  }
  result->default_system_ = DefaultSystem(spec.chat_template);
  return result;
}

absl::StatusOr<ChatTemplate> ChatTemplate::OfFamily(std::string_view name,
                                                    const TokenizerSpec& spec) {
  for (const ChatFamily& family : kFamilies) {
    if (family.name != name) continue;
    PACELINE_ASSIGN_OR_RETURN(ChatTemplate result, Make(family, spec));
    result.default_system_ = std::string(family.system_text);
    return result;
  }
  return absl::InvalidArgumentError(absl::StrCat("--chat-template: expected one of ", FamilyNames(),
                                                 ", got '", std::string(name), "'"));
}

std::string ChatTemplate::family() const { return std::string(family_->name); }

std::vector<ChatMessage> ChatTemplate::WithSystem(const std::vector<ChatMessage>& messages) const {
  std::vector<ChatMessage> turns = messages;
  const bool has_system = !turns.empty() && turns.front().role == "system";
  if (!has_system && (!default_system_.empty() || !system_prefix_.empty())) {
    turns.insert(turns.begin(), {"system", default_system_});
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (family_->trims) absl::StripAsciiWhitespace(&turns[i].content);
    if (turns[i].role == "system") turns[i].content.insert(0, system_prefix_);
  }
  if (family_->system.empty()) PutSystemIntoUser(family_->system_in_last, turns);
  return turns;
}

// Marks become parts of their own, whatever lies between them one of text.
void ChatTemplate::AddWrapper(std::string_view wrapper, std::vector<Part>& parts) const {
  while (!wrapper.empty()) {
    size_t begin = wrapper.size();
    const Part* next = nullptr;
    for (const Part& mark : marks_) {
      const size_t at = wrapper.find(mark.text);
      if (at < begin) begin = at, next = &mark;
    }
    if (begin > 0) parts.push_back({std::string(wrapper.substr(0, begin)), std::nullopt});
    if (next == nullptr) return;
    parts.push_back(*next);
    wrapper.remove_prefix(begin + next->text.size());
  }
}

std::vector<ChatTemplate::Part> ChatTemplate::Parts(const std::vector<ChatMessage>& messages,
                                                    Ending ending) const {
  std::vector<Part> parts;
  if (begin_) parts.push_back(*begin_);
  std::vector<ChatMessage> turns = WithSystem(messages);
  const bool continues = ending == Ending::kContinue;
  if (continues) turns.back().content = messages.back().content;  // As it is, to its last space.
  for (const ChatMessage& turn : turns) {
    const std::string_view wrapper = WrapperOf(*family_, turn.role);
    const size_t place = wrapper.find('$');
    AddWrapper(wrapper.substr(0, place), parts);
    parts.push_back({turn.content, std::nullopt});
    if (continues && &turn == &turns.back()) return parts;
    AddWrapper(wrapper.substr(place + 1), parts);
  }
  if (ending == Ending::kNewTurn) AddWrapper(family_->answer, parts);
  return parts;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Render(const Tokenizer& tokenizer,
                                                          const std::vector<ChatMessage>& messages,
                                                          Ending ending) const {
  PACELINE_RETURN_IF_ERROR(CheckMessages(messages, ending));
  std::vector<int32_t> ids;
  std::string text;  // One stretch between two marks: the words of its parts may touch.
  const auto encode = [&]() -> absl::Status {
    PACELINE_ASSIGN_OR_RETURN(const std::vector<int32_t> more,
                              tokenizer.Encode(text, Tokenizer::Specials::kPlainText));
    ids.insert(ids.end(), more.begin(), more.end());
    text.clear();
    return absl::OkStatus();
  };
  for (const Part& part : Parts(messages, ending)) {
    if (!part.mark) {
      text += part.text;
      continue;
    }
    PACELINE_RETURN_IF_ERROR(encode());
    ids.push_back(*part.mark);
  }
  PACELINE_RETURN_IF_ERROR(encode());
  return ids;
}

std::string ChatTemplate::RenderText(const std::vector<ChatMessage>& messages,
                                     Ending ending) const {
  std::string text;
  for (const Part& part : Parts(messages, ending)) text += part.text;
  return text;
}

}  // namespace paceline
