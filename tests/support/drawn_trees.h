// Trees of drawn candidates, as a drafter makes them, for every way of choosing the children of a node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "sampling/proposal.h"
#include "tests/support/laws.h"
#include "verify/randomness.h"

namespace paceline::testing {

enum class Children { kWithoutReplacement, kWithReplacement, kMixed, kCertainFirst, kPicked };

struct TreeShape {
  int32_t width = 2;
  int32_t depth = 2;
  Children children = Children::kWithoutReplacement;
  // A drawn node gets children only if it was drafted with at least this probability.
  double expand_if_at_least = 0;
};

template <typename Real>
Distribution<Real> Renormalised(std::vector<double> weights) {
  double total = 0;
  for (double weight : weights) total += weight;
  for (double& weight : weights) weight /= total;
  return MakeRow<Real>(weights);
}

template <typename Real>
std::vector<double> Doubles(const Distribution<Real>& row) {
  const std::vector<Real> dense = row.Dense();
  return {dense.begin(), dense.end()};
}

// Ids by probability, ties to the lowest, without those of probability 0.
inline std::vector<int32_t> RankedIds(const std::vector<double>& probs) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < probs.size(); ++id) {
    if (probs[id] > 0) ids.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return probs[a] > probs[b]; });
  return ids;
}

// Draws the tree that `shape` says, rows from `draft`; those of the second and later candidates of
// kMixed from `other`. The first node's token has the absolute position `position`.
template <typename Real>
class TreeDrawer {
 public:
  TreeDrawer(RowOf<Real> draft, RowOf<Real> other, TreeShape shape, uint32_t position,
             Randomness& randomness)
      : draft_(std::move(draft)),
        other_(std::move(other)),
        shape_(shape),
        position_(position),
        randomness_(randomness) {}

  Proposal<Real> Draw() {
    for (int32_t node = -1; node < proposal_.tree.size(); ++node) {
      const Tokens prefix = proposal_.tree.PathTokens(node);
      if (static_cast<int32_t>(prefix.size()) == shape_.depth) continue;
      if (node >= 0 && drafted_with_[node] < shape_.expand_if_at_least) continue;
      Expand(node, prefix);
    }
    return std::move(proposal_);
  }

 private:
  void Expand(int32_t node, const Tokens& prefix) {
    switch (shape_.children) {
      case Children::kWithoutReplacement:
        return DrawDistinct(node, draft_(prefix));
      case Children::kWithReplacement:
        return DrawIndependent(node, {draft_(prefix)});
      case Children::kMixed: {
        std::vector<Distribution<Real>> rows(1, draft_(prefix));
        while (static_cast<int32_t>(rows.size()) < shape_.width) rows.push_back(other_(prefix));
        return DrawIndependent(node, std::move(rows));
      }
      case Children::kCertainFirst:
        return PickAndDraw(node, draft_(prefix));
      case Children::kPicked:
        return Pick(node, draft_(prefix));
    }
  }

  NoiseAddress Noise(int32_t node, uint16_t draw) const {
    const auto offset = static_cast<uint8_t>(proposal_.tree.Depth(node));
    return {position_ + offset, Purpose::kDraft, offset,
            static_cast<uint16_t>((node + 1) * 16 + draw)};
  }

  int32_t Add(int32_t node, int32_t token, double drafted_with) {
    drafted_with_.push_back(drafted_with);
    return proposal_.tree.Add(node, token);
  }

  int32_t DrawOne(int32_t node, uint16_t draw, const std::vector<double>& probs) {
    return static_cast<int32_t>(
        randomness_.Draw(Noise(node, draw), std::span<const double>(probs), {}).index);
  }

  void DrawDistinct(int32_t node, Distribution<Real> row) {
    std::vector<double> left = Doubles(row);
    for (uint16_t draw = 0; draw < shape_.width; ++draw) {
      if (std::none_of(left.begin(), left.end(), [](double prob) { return prob > 0; })) break;
      const int32_t token = DrawOne(node, draw, left);
      left[token] = 0;
      Add(node, token, row.Prob(token));
    }
    proposal_.draft_rows.push_back(ProposalDist<Real>::Sampled(std::move(row)));
  }

  void DrawIndependent(int32_t node, std::vector<Distribution<Real>> rows) {
    std::vector<int32_t> draws;
    for (uint16_t draw = 0; draw < shape_.width; ++draw) {
      const Distribution<Real>& row = rows[rows.size() == 1 ? 0 : draw];
      const int32_t token = DrawOne(node, draw, Doubles(row));
      const auto again = std::find_if(draws.begin(), draws.end(), [&](int32_t child) {
        return proposal_.tree.tokens[child] == token;
      });
      draws.push_back(again != draws.end() ? *again : Add(node, token, row.Prob(token)));
    }
    proposal_.draft_rows.push_back(
        ProposalDist<Real>::Independent(std::move(rows), std::move(draws)));
  }

  void PickAndDraw(int32_t node, const Distribution<Real>& row) {
    std::vector<double> left = Doubles(row);
    std::vector<int32_t> certain = RankedIds(left);
    certain.resize(std::min<size_t>(certain.size(), shape_.width - 1));
    for (const int32_t token : certain) {
      Add(node, token, 1);
      left[token] = 0;
    }
    Distribution<Real> rest;
    if (std::any_of(left.begin(), left.end(), [](double prob) { return prob > 0; })) {
      rest = Renormalised<Real>(left);
      const int32_t token = DrawOne(node, 0, left);
      Add(node, token, rest.Prob(token));
    }
    proposal_.draft_rows.push_back(ProposalDist<Real>::CertainFirst(
        static_cast<int32_t>(certain.size()), std::move(rest)));
  }

  void Pick(int32_t node, const Distribution<Real>& row) {
    const std::vector<int32_t> ids = RankedIds(Doubles(row));
    for (size_t i = 0; i < ids.size() && static_cast<int32_t>(i) < shape_.width; ++i) {
      Add(node, ids[i], 1);
    }
    proposal_.draft_rows.push_back(ProposalDist<Real>::Deterministic());
  }

  RowOf<Real> draft_;
  RowOf<Real> other_;
  TreeShape shape_;
  uint32_t position_;
  Randomness& randomness_;
  Proposal<Real> proposal_;
  std::vector<double> drafted_with_;  // Of each node.
};

template <typename Real>
Proposal<Real> DrawTree(const RowOf<Real>& draft, const TreeShape& shape, Randomness& randomness,
                        uint32_t position = 0) {
  return TreeDrawer<Real>(draft, draft, shape, position, randomness).Draw();
}

}  // namespace paceline::testing
