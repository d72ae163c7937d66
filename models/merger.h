// The merging half of byte-pair encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace paceline::internal {

// Ids of text tokens by their spelling.
using Spellings = absl::flat_hash_map<std::string_view, int32_t>;

// A pair that becomes one token; the lower rank goes first.
struct Merge {
  int32_t rank;
  int32_t merged;
};

class MergeRule {
 public:
  virtual ~MergeRule() = default;
  // What neighbours become, if anything.
  virtual std::optional<Merge> Find(int32_t left, int32_t right) const = 0;
};

// A list of pairs, the best first.
class PairMerges : public MergeRule {
 public:
  // Ranks follow the order of the calls. Without effect if the pair is there already.
  void Add(int32_t left, int32_t right, int32_t merged);
  std::optional<Merge> Find(int32_t left, int32_t right) const override;

 private:
  absl::flat_hash_map<uint64_t, Merge> by_pair_;
};

// Every pair whose texts spell a token together; tokens of a better score go first, those of equal
// scores are of one rank.
class ScoredMerges : public MergeRule {
 public:
  // `tokens` and `scores` are [V]; tokens and spellings must outlive this. What is in no spelling
  // takes no part.
  ScoredMerges(const std::vector<std::string>& tokens, const std::vector<float>& scores,
               const Spellings& spellings);
  std::optional<Merge> Find(int32_t left, int32_t right) const override;

 private:
  const std::vector<std::string>& tokens_;
  const Spellings& spellings_;
  std::vector<int32_t> ranks_;  // [V]; -1: takes no part.
};

// Merges neighbours in `ids` in place, the best-ranked pair first and the leftmost of equals, until
// no pair is left. Cost: O(n log n).
void ApplyMerges(const MergeRule& rule, std::vector<int32_t>& ids);

}  // namespace paceline::internal
