#include "batch/tree_layout.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr int64_t kMostNodes = 4096;
constexpr int32_t kMostDepth = 255;  // Noise has an address of 8 bits for a place in the draft.

absl::Status EntryError(std::string_view array, int64_t entry, std::string_view expected,
                        int64_t got) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(array), "[", entry, "]: expected ",
                                                 std::string(expected), ", got ", got));
}

// Number of entries before the padding.
absl::Status CountTokens(const IdSpan& tokens, int64_t& count) {
  count = 0;
  while (count < tokens.size() && tokens[count] != -1) ++count;
  for (int64_t i = count; i < tokens.size(); ++i) {
    if (tokens[i] != -1) return EntryError("draft_tokens", i, "-1 behind padding", tokens[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckToken(int64_t entry, int64_t token, int32_t vocab_size) {
  if (token >= 0 && token < vocab_size) return absl::OkStatus();
  return EntryError("draft_tokens", entry, absl::StrCat("an id in [0, ", vocab_size, ") or -1"),
                    token);
}

// A chain, or a tree by its parents.
absl::Status AddListed(const DraftedTokens& drafted, int32_t vocab_size, NumberedTree& numbered) {
  const bool chain = drafted.parents.empty();
  if (!chain && drafted.parents.size() != drafted.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("parents: expected ", drafted.tokens.size(),
                                                   " entries, one a token, got ",
                                                   drafted.parents.size()));
  }
  int64_t count = 0;
  PACELINE_RETURN_IF_ERROR(CountTokens(drafted.tokens, count));
  for (int64_t i = 0; i < count; ++i) {
    PACELINE_RETURN_IF_ERROR(CheckToken(i, drafted.tokens[i], vocab_size));
    const int64_t parent = chain ? i - 1 : drafted.parents[i];
    if (parent < -1 || parent >= i) {
      return EntryError("parents", i, "-1 or an earlier node", parent);
    }
    numbered.tree.Add(static_cast<int32_t>(parent), static_cast<int32_t>(drafted.tokens[i]));
    numbered.entries.push_back(static_cast<int32_t>(i + 1));
  }
  return absl::OkStatus();
}

// Adds the children of `node`.
absl::Status AddChildren(const DraftedTokens& drafted, int32_t vocab_size, int32_t node,
                         NumberedTree& numbered) {
  const int64_t size = drafted.tokens.size();
  const int64_t first = drafted.first_child[numbered.EntryOf(node)];
  int64_t from = -1;  // The entry that leads here; -1: the parent.
  for (int64_t entry = first; entry != -1; entry = drafted.next_sibling[entry]) {
    const std::string_view array = from < 0 ? "first_child" : "next_sibling";
    const int64_t place = from < 0 ? numbered.EntryOf(node) : from;
    if (entry < 1 || entry >= size) {
      return EntryError(array, place, absl::StrCat("-1 or an entry in [1, ", size, ")"), entry);
    }
    if (numbered.reached[entry]) {
      return EntryError(array, place, "an entry that nothing else leads to", entry);
    }
    numbered.reached[entry] = true;
    PACELINE_RETURN_IF_ERROR(CheckToken(entry, drafted.tokens[entry], vocab_size));
    numbered.tree.Add(node, static_cast<int32_t>(drafted.tokens[entry]));
    numbered.entries.push_back(static_cast<int32_t>(entry));
    from = entry;
  }
  return absl::OkStatus();
}

absl::Status AddLinked(const DraftedTokens& drafted, int32_t vocab_size, NumberedTree& numbered) {
  const int64_t size = drafted.tokens.size();
  if (size == 0 || drafted.first_child.size() != size || drafted.next_sibling.size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("first_child, next_sibling: expected ", size,
                                                   " entries each, one a token and at least that "
                                                   "of the root, got ",
                                                   drafted.first_child.size(), " and ",
                                                   drafted.next_sibling.size()));
  }
  numbered.reached.assign(size, false);
  for (int32_t node = -1; node < numbered.tree.size(); ++node) {
    PACELINE_RETURN_IF_ERROR(AddChildren(drafted, vocab_size, node, numbered));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MakeTree(const DraftedTokens& drafted, int32_t vocab_size, NumberedTree& numbered) {
  if (drafted.tokens.size() > kMostNodes) {
    return absl::InvalidArgumentError(absl::StrCat("draft_tokens: expected at most ", kMostNodes,
                                                   " a request, got ", drafted.tokens.size()));
  }
  numbered.tree.tokens.clear();
  numbered.tree.parents.clear();
  numbered.entries.clear();
  numbered.linked = !drafted.first_child.empty();
  PACELINE_RETURN_IF_ERROR(numbered.linked ? AddLinked(drafted, vocab_size, numbered)
                                           : AddListed(drafted, vocab_size, numbered));
  if (const int32_t depth = numbered.tree.MaxDepth(); depth > kMostDepth) {
    return absl::InvalidArgumentError(absl::StrCat("draft_tokens: expected at most ", kMostDepth,
                                                   " behind one another, got ", depth));
  }
  return absl::OkStatus();
}

}  // namespace paceline
