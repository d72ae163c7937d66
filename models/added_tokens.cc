#include "models/added_tokens.h"

namespace paceline::internal {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

void AddedTokens::Add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] =
        children_.try_emplace(ChildKey(node, byte), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = child->second;
  }
  if (ids_[node] < 0) ids_[node] = id;
}

std::optional<AddedTokens::Match> AddedTokens::Find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    if (const auto match = LongestAt(text, begin)) return match;
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
