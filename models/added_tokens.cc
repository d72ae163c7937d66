#include "models/added_tokens.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace paceline::internal {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

// The character that begins at `at` or ends there, which moves past it; negative if there is none.
UChar32 NextCharacter(std::string_view text, size_t& at) {
  auto i = static_cast<int64_t>(at);
  if (at >= text.size()) return -1;
  UChar32 character;
  U8_NEXT(text.data(), i, static_cast<int64_t>(text.size()), character);
  at = static_cast<size_t>(i);
  return character;
}

UChar32 PreviousCharacter(std::string_view text, size_t& at) {
  auto i = static_cast<int32_t>(at);  // ICU walks back in 32 bits; Encode takes no longer texts.
  if (at == 0) return -1;
  UChar32 character;
  U8_PREV(text.data(), 0, i, character);
  at = static_cast<size_t>(i);
  return character;
}

// As \w of regular expressions: letters, marks, digits, connectors.
bool IsWordCharacter(UChar32 character) {
  if (character < 0) return false;
  return u_hasBinaryProperty(character, UCHAR_ALPHABETIC) ||
         (U_GET_GC_MASK(character) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool IsWordOfItsOwn(std::string_view text, size_t begin, size_t end) {
  return !IsWordCharacter(PreviousCharacter(text, begin)) &&
         !IsWordCharacter(NextCharacter(text, end));
}

// The beginning of the white space that ends at `end`, not before `from`; the end of that which
// begins at `begin`.
size_t SpaceBefore(std::string_view text, size_t from, size_t end) {
  for (size_t at = end; at > from;) {
    const UChar32 character = PreviousCharacter(text, at);
    if (character < 0 || !u_isUWhiteSpace(character) || at < from) break;
    end = at;
  }
  return end;
}

size_t SpaceBehind(std::string_view text, size_t begin) {
  for (size_t at = begin; at < text.size();) {
    const UChar32 character = NextCharacter(text, at);
    if (character < 0 || !u_isUWhiteSpace(character)) break;
    begin = at;
  }
  return begin;
}

}  // namespace

void AddedTokens::Add(std::string_view text, const AddedOptions& options) {
  if (text.empty()) return;
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] =
        children_.try_emplace(ChildKey(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = child->second;
  }
  if (ids_[node] >= 0) return;
  ids_[node] = options.id;
  if (options.single_word || options.takes_left || options.takes_right) {
    options_[options.id] = options;
  }
}

std::optional<AddedTokens::Match> AddedTokens::Find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    std::optional<Match> match = LongestAt(text, begin);
    if (!match) continue;
    const auto options = options_.find(match->id);
    if (options == options_.end()) return match;
    if (options->second.single_word && !IsWordOfItsOwn(text, match->begin, match->end)) {
      begin = match->end - 1;
      continue;
    }
    if (options->second.takes_left) match->begin = SpaceBefore(text, from, match->begin);
    if (options->second.takes_right) match->end = SpaceBehind(text, match->end);
    return match;
  }
  return std::nullopt;
}

std::optional<AddedTokens::Match> AddedTokens::LongestAt(std::string_view text,
                                                         size_t begin) const {
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const auto child = children_.find(ChildKey(node, text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (ids_[node] >= 0) longest = Match{begin, i + 1, ids_[node]};
  }
  return longest;
}

}  // namespace paceline::internal
