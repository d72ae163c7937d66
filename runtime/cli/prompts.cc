#include "runtime/cli/prompts.h"

#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline::cli {
namespace {

using nlohmann::json;

// The prompt's text in a parsed line; null if there is none.
const json* TextOf(const json& line) {
  if (line.is_string()) return &line;
  if (!line.is_object()) return nullptr;
  const auto prompt = line.find("prompt");
  if (prompt != line.end()) return prompt->is_string() ? &*prompt : nullptr;
  const auto turns = line.find("turns");
  if (turns == line.end() || !turns->is_array() || turns->empty()) return nullptr;
  return turns->front().is_string() ? &turns->front() : nullptr;
}

absl::StatusOr<std::vector<Prompt>> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in || in.peek() == std::ifstream::traits_type::eof()) {
    return absl::NotFoundError(
        absl::StrCat("--prompts: expected a file with a prompt a line, got '", path,
                     in.bad() || !in.is_open() ? "', which cannot be read" : "', which has none"));
  }
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PACELINE_ASSIGN_OR_RETURN(Prompt prompt,
                              ParsePromptLine(line, absl::StrCat(path, ":", number)));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompts: expected a prompt a line in '", path, "', got none"));
  }
  return prompts;
}

}  // namespace

absl::StatusOr<Prompt> ParsePromptLine(const std::string& line, const std::string& origin) {
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  const json* text = parsed.is_discarded() ? nullptr : TextOf(parsed);
  if (text == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin,
                     ": expected a JSON string or an object with a text `prompt` or a list of "
                     "texts `turns`, got ",
                     absl::CHexEscape(line.substr(0, 60)), line.size() > 60 ? "..." : ""));
  }
  Prompt prompt{text->get<std::string>(), std::nullopt, origin, "", nullptr};
  if (!parsed.is_object()) return prompt;
  if (parsed.contains("category") && parsed["category"].is_string()) {
    prompt.category = parsed["category"].get<std::string>();
  }
  if (parsed.contains("question_id")) prompt.question_id = parsed["question_id"];
  return prompt;
}

std::string ReadStandardInput() {
  return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

absl::StatusOr<std::vector<Prompt>> ReadPrompts(const GenerateOptions& options) {
  if (!options.prompts_file.empty()) return ReadFile(options.prompts_file);
  Prompt prompt;
  prompt.origin = options.prompt_ids ? "--prompt-ids" : "--prompt";
  prompt.ids = options.prompt_ids;
  if (options.prompt) prompt.text = *options.prompt;
  if (prompt.text == "-") {
    prompt.text = ReadStandardInput();
    if (prompt.text.ends_with('\n')) prompt.text.pop_back();
  }
  return std::vector<Prompt>{std::move(prompt)};
}

absl::StatusOr<PromptEncoder> PromptEncoder::Create(const GenerateOptions& options,
                                                    const Tokenizer& tokenizer) {
  PromptEncoder encoder(tokenizer, options);
  if (options.raw || options.prompt_ids) return encoder;
  const TokenizerSpec& spec = tokenizer.spec();
  absl::StatusOr<ChatTemplate> chat = options.chat_template.empty()
                                          ? ChatTemplate::Recognise(spec)
                                          : ChatTemplate::OfFamily(options.chat_template, spec);
  if (chat.ok()) {
    encoder.chat_ = *std::move(chat);
    return encoder;
  }
  const bool wants_chat = options.chat || !options.system.empty() || !options.prefill.empty();
  if (wants_chat || !absl::IsNotFound(chat.status())) return chat.status();
  encoder.notice_ = "note: the model has no chat template; continuing the prompt as raw text";
  return encoder;
}

absl::StatusOr<std::vector<int32_t>> PromptEncoder::Encode(const Prompt& prompt) const {
  if (prompt.ids) return *prompt.ids;
  if (!chat_) {
    PACELINE_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                              tokenizer_.Encode(prompt.text, Tokenizer::Specials::kParse));
    return tokenizer_.AddBos(std::move(ids));
  }
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  messages.push_back({"user", prompt.text});
  if (prefill_.empty()) return chat_->Render(tokenizer_, messages);
  messages.push_back({"assistant", prefill_});
  return chat_->Render(tokenizer_, messages, ChatTemplate::Ending::kContinue);
}

}  // namespace paceline::cli
