#include "models/merger.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace paceline::internal {
namespace {

constexpr int32_t kNone = -1;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A node of the doubly linked list of what is left of a word.
struct Symbol {
  int32_t id;    // kNone once merged into its left neighbour.
  int32_t prev;  // Index of the neighbour, or kNone.
  int32_t next;
};

// A pair that could be merged when it was pushed; outdated if its ids have changed since.
struct Candidate {
  int32_t rank;
  int32_t left;  // Index of the left symbol.
  int32_t left_id, right_id, merged;

  // Order of a heap whose front is the best rank, then the leftmost.
  bool operator<(const Candidate& other) const {
    return std::tie(rank, left) > std::tie(other.rank, other.left);
  }
};

void Push(const MergeRule& rule, const std::vector<Symbol>& symbols, int32_t left,
          std::vector<Candidate>& heap) {
  if (left == kNone || symbols[left].next == kNone) return;
  const int32_t left_id = symbols[left].id;
  const int32_t right_id = symbols[symbols[left].next].id;
  const std::optional<Merge> merge = rule.Find(left_id, right_id);
  if (!merge) return;
  heap.push_back({merge->rank, left, left_id, right_id, merge->merged});
  std::push_heap(heap.begin(), heap.end());
}

}  // namespace

void PairMerges::Add(int32_t left, int32_t right, int32_t merged) {
  const auto rank = static_cast<int32_t>(by_pair_.size());
  by_pair_.try_emplace(PairKey(left, right), Merge{rank, merged});
}

std::optional<Merge> PairMerges::Find(int32_t left, int32_t right) const {
  const auto found = by_pair_.find(PairKey(left, right));
  if (found == by_pair_.end()) return std::nullopt;
  return found->second;
}

ScoredMerges::ScoredMerges(const std::vector<std::string>& tokens, const std::vector<float>& scores,
                           const Spellings& spellings)
    : tokens_(tokens), spellings_(spellings), ranks_(tokens.size(), kNone) {
  std::vector<int32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t x, int32_t y) { return scores[x] > scores[y]; });
  int32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && scores[order[i]] < scores[order[i - 1]]) ++rank;
    const auto found = spellings.find(tokens[order[i]]);
    if (found != spellings.end() && found->second == order[i]) ranks_[order[i]] = rank;
  }
}

std::optional<Merge> ScoredMerges::Find(int32_t left, int32_t right) const {
  if (ranks_[left] == kNone || ranks_[right] == kNone) return std::nullopt;
  const auto found = spellings_.find(tokens_[left] + tokens_[right]);
  if (found == spellings_.end()) return std::nullopt;
  return Merge{ranks_[found->second], found->second};
}

void ApplyMerges(const MergeRule& rule, std::vector<int32_t>& ids) {
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<Symbol> symbols(count);
  for (int32_t i = 0; i < count; ++i) {
    symbols[i] = {ids[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  std::vector<Candidate> heap;
  for (int32_t i = 0; i < count; ++i) Push(rule, symbols, i, heap);
  while (!heap.empty()) {
    const Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    Symbol& left = symbols[best.left];
    if (left.id != best.left_id || left.next == kNone) continue;
    Symbol& right = symbols[left.next];
    if (right.id != best.right_id) continue;
    left.id = best.merged;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].prev = best.left;
    Push(rule, symbols, left.prev, heap);
    Push(rule, symbols, best.left, heap);
  }
  ids.clear();
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kNone) ids.push_back(symbol.id);
  }
}

}  // namespace paceline::internal
