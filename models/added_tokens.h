// Finds added tokens in text: the longest one at each position.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "models/tokenizer_spec.h"

namespace paceline::internal {

// A trie of token texts. Cost of a search: O(text x longest token) at worst, near O(text) as a
// rule.
class AddedTokens {
 public:
  struct Match {
    size_t begin, end;  // With the white space that the token takes.
    int32_t id;
  };

  // Of equal texts the first added wins. An empty text never matches.
  void Add(std::string_view text, const AddedOptions& options);
  bool empty() const { return ids_.size() == 1; }

  // The leftmost match at or after `from`, the longest one there. A token that has to be a word of
  // its own and is not hides the shorter ones in it.
  std::optional<Match> Find(std::string_view text, size_t from) const;

 private:
  std::optional<Match> LongestAt(std::string_view text, size_t begin) const;

  // Node 0 is the root. A child is found by (node << 8 | byte).
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> ids_{-1};                        // By node; -1: no token ends here.
  bool first_bytes_[256] = {};                          // Bytes that a token begins with.
  absl::flat_hash_map<int32_t, AddedOptions> options_;  // By id, where there are any.
};

}  // namespace paceline::internal
