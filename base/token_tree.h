// The drafted tokens of one round, as a tree whose root is the last committed token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"

namespace paceline {

// Nodes of a tree; memory of its own only for more than 16.
using NodeList = absl::InlinedVector<int32_t, 16>;

// N drafted tokens. Node i of the tree is tokens[i], drafted as a continuation of node parents[i];
// parent -1 is the root, which is not stored. Parents come before children: parents[i] < i.
// A chain is the tree in which parents[i] == i - 1. An empty tree is plain decoding.
//
// Where a number of a node counts the root (random streams, target rows), it is index + 1.
struct TokenTree {
  std::vector<int32_t> tokens;   // [N]
  std::vector<int32_t> parents;  // [N]

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  bool empty() const { return tokens.empty(); }

  // Adds a child of `parent` and returns its index.
  int32_t Add(int32_t parent, int32_t token);

  // True if every node has at most one child, each following the one before it.
  bool IsChain() const;

  // Depth of node i: 1 for a child of the root; Depth(-1) is 0.
  int32_t Depth(int32_t node) const;

  // Length of the longest path from the root.
  int32_t MaxDepth() const;

  // Whether `parent` (-1: the root) has a child.
  bool HasChildren(int32_t parent) const;

  // How many of the nodes before `node`, the root first, have children.
  int32_t NumExpandedBefore(int32_t node) const;

  // Indices of the children of `parent` (-1: the root), in the order in which they were drafted.
  NodeList Children(int32_t parent) const;

  // Tokens on the path from the root to `node` inclusive; empty for the root (-1).
  std::vector<int32_t> PathTokens(int32_t node) const;

  // kInvalidArgument unless the two vectors have one length, parents precede their children, every
  // token lies in [0, vocab_size) and siblings differ.
  absl::Status Validate(int32_t vocab_size) const;

  // Chain of `tokens`.
  static TokenTree Chain(std::span<const int32_t> tokens);
};

}  // namespace paceline
