// Drafted tokens as serving stacks hold them, made into a TokenTree.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/token_tree.h"
#include "batch/arrays.h"

namespace paceline {

// Drafted tokens of one request in one of three forms. Tokens of -1 at the end are padding.
struct DraftedTokens {
  IdSpan tokens;  // Chain and parents: [n], the drafted ones. Linked: [n + 1], entry 0 is the root.
  IdSpan parents;  // Parents: [n], each before its children; -1 is the root.
  // Linked: [n + 1], entries of this list, -1 where there is none. Children come in the order in
  // which they were drafted; entries that the root does not lead to are no part of the tree.
  IdSpan first_child;
  IdSpan next_sibling;
};

// Where the nodes of a TokenTree lie in the arrays of its request.
struct NumberedTree {
  TokenTree tree;
  std::vector<int32_t> entries;  // Of node i, counted with the root as entry 0.
  bool linked = false;           // Numbers that the request reads count the root as well.
  std::vector<bool> reached;     // Entries of a linked tree that are nodes.

  int32_t EntryOf(int32_t node) const { return node < 0 ? 0 : entries[node]; }
  // The number of the node in its request's own count.
  int32_t NumberOf(int32_t node) const { return entries[node] - (linked ? 0 : 1); }
};

// Makes `numbered` of `drafted`, in the memory it has. A linked tree is numbered in breadth-first
// order. kInvalidArgument naming the array and the entry: a token outside [0, vocab_size), a
// drafted token behind padding, siblings that are equal, a parent that does not come first, a link
// outside the list, a list that comes back to an entry; more than 4096 tokens, or 255 in a row.
absl::Status MakeTree(const DraftedTokens& drafted, int32_t vocab_size, NumberedTree& numbered);

}  // namespace paceline
