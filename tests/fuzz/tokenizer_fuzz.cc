// Any text encodes and, if well-formed, decodes to itself; any ids and any spec are survived.
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/byte_level.h"
#include "models/chat_template.h"
#include "models/tokenizer.h"

namespace paceline {
namespace {

using Kind = TokenizerSpec::TokenKind;
using Ids = std::vector<int32_t>;
using Specials = Tokenizer::Specials;

constexpr std::array kPatterns = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

void Require(bool holds) {
  if (!holds) std::abort();
}

void AddToken(TokenizerSpec& spec, std::string text, Kind kind) {
  spec.tokens.push_back(std::move(text));
  spec.kinds.push_back(kind);
}

// The bytes, some merges, and added tokens that overlap each other.
TokenizerSpec SpecFor(std::string_view pattern) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = pattern;
  for (int byte = 0; byte < 256; ++byte) {
    AddToken(spec, std::string(internal::ByteLevelSpelling(static_cast<uint8_t>(byte))),
             Kind::kNormal);
  }
  constexpr std::array<std::pair<const char*, const char*>, 8> kMerges = {{{"a", "a"},
                                                                           {"aa", "aa"},
                                                                           {"h", "e"},
                                                                           {"t", "he"},
                                                                           {"Ġ", "the"},
                                                                           {"1", "2"},
                                                                           {"Ġ", "Ġ"},
                                                                           {"Ã", "©"}}};
  for (const auto& [left, right] : kMerges) {
    AddToken(spec, std::string(left) + right, Kind::kNormal);
    spec.merges.emplace_back(left, right);
  }
  AddToken(spec, "<|im_start|>", Kind::kControl);
  AddToken(spec, "<|im_end|>", Kind::kControl);
  AddToken(spec, "<a>", Kind::kUserDefined);
  AddToken(spec, "<a><b>", Kind::kUserDefined);
  AddToken(spec, "[pad]", Kind::kUnused);
  spec.chat_template = "<|im_start|>";
  return spec;
}

std::unique_ptr<Tokenizer> Make(std::string_view pattern) {
  auto tokenizer = Tokenizer::Create(SpecFor(pattern));
  Require(tokenizer.ok());
  return *std::move(tokenizer);
}

const Tokenizer& TokenizerOf(uint8_t choice) {
  static const std::array<std::unique_ptr<Tokenizer>, 4> tokenizers = {
      Make(kPatterns[0]), Make(kPatterns[1]), Make(kPatterns[2]), Make(kPatterns[3])};
  return *tokenizers[choice % tokenizers.size()];
}

bool IsWellFormed(std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t i = 0; i < size;) {
    UChar32 code_point;
    U8_NEXT(text.data(), i, size, code_point);
    if (code_point < 0) return false;
  }
  return true;
}

// Every byte has a token, so the pieces give the text back, well-formed or not.
void TryText(const Tokenizer& tokenizer, std::string_view text, Specials specials) {
  const auto ids = tokenizer.Encode(text, specials);
  Require(ids.ok());
  std::string bytes;
  for (const int32_t id : *ids) {
    Require(specials == Specials::kParse || !tokenizer.IsControl(id));
    bytes += tokenizer.Piece(id, /*show_control=*/true);
  }
  Require(bytes == text);
  const std::string decoded = tokenizer.Decode(*ids, /*show_control=*/true);
  Require(IsWellFormed(decoded));
  Require(!IsWellFormed(text) || decoded == text);
}

void TryIds(const Tokenizer& tokenizer, std::string_view data) {
  Ids ids;
  for (size_t i = 0; i + 1 < data.size(); i += 2) {
    const auto high = static_cast<uint8_t>(data[i]);
    ids.push_back((high << 8 | static_cast<uint8_t>(data[i + 1])) % 300 - 5);
  }
  StreamDecoder decoder;
  std::string joined;
  for (const int32_t id : ids) joined += decoder.Push(tokenizer.Piece(id));
  Require(joined + decoder.Flush() == tokenizer.Decode(ids));
}

void TryChat(const Tokenizer& tokenizer, std::string_view content) {
  const auto chat = ChatTemplate::Recognise(tokenizer.spec());
  Require(chat.ok());
  const auto ids = chat->Render(tokenizer, {{"user", std::string(content)}});
  Require(ids.ok());
  int controls = 0;
  for (const int32_t id : *ids) controls += tokenizer.IsControl(id) ? 1 : 0;
  Require(controls == 3);
}

// Reads changes of a spec off the input: which part, where, and what to put there.
void TrySpec(TokenizerSpec spec, std::string_view data) {
  while (data.size() >= 4) {
    const auto part = static_cast<uint8_t>(data[0]) % 8;
    const auto at = static_cast<uint8_t>(data[1]) | (data[2] & 1) << 8;
    const std::string text(data.substr(3, static_cast<uint8_t>(data[2]) % 12));
    const int32_t number = static_cast<int8_t>(data[3]) * 4;
    data.remove_prefix(std::min(data.size(), 3 + text.size() + 1));
    switch (part) {
      case 0:
        spec.tokens[at % spec.tokens.size()] = text;
        break;
      case 1:
        spec.kinds[at % spec.kinds.size()] = static_cast<Kind>(number & 7);
        break;
      case 2:
        if (auto merge = ParseMerge(text); merge.ok()) spec.merges.push_back(*std::move(merge));
        break;
      case 3:
        AddToken(spec, text, static_cast<Kind>(number & 7));
        break;
      case 4:
        spec.bos_id = number;
        break;
      case 5:
        spec.unknown_id = number;
        break;
      case 6:
        spec.chat_template += text;
        break;
      default:
        spec.ignore_merges = !spec.ignore_merges;
        break;
    }
  }
  const auto chat = ChatTemplate::Recognise(spec);
  const auto tokenizer = Tokenizer::Create(spec);
  if (!tokenizer.ok()) return;
  const auto ids = (*tokenizer)->Encode("the 1234 caf\u00e9 <a><b>\xFF", Specials::kParse);
  Require(ids.ok());
  (*tokenizer)->Decode((*tokenizer)->AddBos(*ids));
  if (chat.ok()) Require(chat->Render(**tokenizer, {{"user", "hi"}}).ok());
}

}  // namespace
}  // namespace paceline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace paceline;  // NOLINT: the entry point must be outside of the namespace.
  if (size == 0) return 0;
  const std::string_view data(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const Tokenizer& tokenizer = TokenizerOf(bytes[0]);
  switch (bytes[0] >> 2 & 3) {
    case 0:
      TryText(tokenizer, data, Specials::kParse);
      break;
    case 1:
      TryText(tokenizer, data, Specials::kPlainText);
      TryChat(tokenizer, data);
      break;
    case 2:
      TryIds(tokenizer, data);
      break;
    default:
      TrySpec(tokenizer.spec(), data);
      break;
  }
  return 0;
}
