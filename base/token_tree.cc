#include "base/token_tree.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paceline {

int32_t TokenTree::Add(int32_t parent, int32_t token) {
  tokens.push_back(token);
  parents.push_back(parent);
  return size() - 1;
}

bool TokenTree::IsChain() const {
  for (int32_t i = 0; i < size(); ++i) {
    if (parents[i] != i - 1) return false;
  }
  return true;
}

int32_t TokenTree::Depth(int32_t node) const {
  int32_t depth = 0;
  for (; node >= 0; node = parents[node]) ++depth;
  return depth;
}

int32_t TokenTree::MaxDepth() const {
  int32_t deepest = 0;
  for (int32_t i = 0; i < size(); ++i) deepest = std::max(deepest, Depth(i));
  return deepest;
}

bool TokenTree::HasChildren(int32_t parent) const {
  return std::find(parents.begin() + (parent + 1), parents.end(), parent) != parents.end();
}

int32_t TokenTree::NumExpandedBefore(int32_t node) const {
  int32_t count = 0;
  for (int32_t before = -1; before < node; ++before) count += HasChildren(before) ? 1 : 0;
  return count;
}

NodeList TokenTree::Children(int32_t parent) const {
  NodeList children;
  for (int32_t i = parent + 1; i < size(); ++i) {
    if (parents[i] == parent) children.push_back(i);
  }
  return children;
}

std::vector<int32_t> TokenTree::PathTokens(int32_t node) const {
  std::vector<int32_t> path;
  for (; node >= 0; node = parents[node]) path.push_back(tokens[node]);
  std::reverse(path.begin(), path.end());
  return path;
}

absl::Status TokenTree::Validate(int32_t vocab_size) const {
  if (tokens.size() != parents.size()) {
    return absl::InvalidArgumentError(absl::StrCat("parents: expected ", tokens.size(),
                                                   " entries, one a token, got ", parents.size()));
  }
  for (int32_t i = 0; i < size(); ++i) {
    if (parents[i] < -1 || parents[i] >= i) {
      return absl::InvalidArgumentError(
          absl::StrCat("parents[", i, "]: expected -1 or an earlier node, got ", parents[i]));
    }
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("tokens[", i, "]: expected an id in [0, ",
                                                     vocab_size, "), got ", tokens[i]));
    }
    for (int32_t j = 0; j < i; ++j) {
      if (parents[j] == parents[i] && tokens[j] == tokens[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokens[", i, "]: expected siblings to differ, got ", tokens[i],
                         " again under node ", parents[i]));
      }
    }
  }
  return absl::OkStatus();
}

TokenTree TokenTree::Chain(std::span<const int32_t> tokens) {
  TokenTree tree;
  for (int32_t token : tokens) tree.Add(tree.size() - 1, token);
  return tree;
}

}  // namespace paceline
