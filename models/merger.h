// The merging half of byte-pair encoding.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace paceline::internal {

// Pairs of token ids that become one token, ranked.
class Merges {
 public:
  // Ranks follow the order of the calls. False, without effect, if the pair is there already.
  bool Add(int32_t left, int32_t right, int32_t merged);

  // Merges neighbours in `ids` in place, the best-ranked pair first and the leftmost of equals,
  // until no pair is left. Cost: O(n log n).
  void Apply(std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t merged;
  };
  struct Symbol;
  struct Candidate;

  const Merge* Find(int32_t left, int32_t right) const;
  void Push(const std::vector<Symbol>& symbols, int32_t left, std::vector<Candidate>& heap) const;

  absl::flat_hash_map<uint64_t, Merge> by_pair_;
};

}  // namespace paceline::internal
