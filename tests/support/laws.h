// Laws of token sequences: targets and drafts as functions of the prefix, and how laws are
// compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "sampling/distribution.h"
#include "sampling/proposal.h"
#include "verify/rule.h"

namespace paceline::testing {

using Tokens = std::vector<int32_t>;
using Law = std::map<Tokens, double>;

// Distribution of the next token after a prefix.
template <typename Real>
using RowOf = std::function<Distribution<Real>(const Tokens& prefix)>;

// The same function, made once for each prefix.
template <typename Real>
RowOf<Real> Memoized(RowOf<Real> row) {
  auto made = std::make_shared<std::map<Tokens, Distribution<Real>>>();
  return [row = std::move(row), made](const Tokens& prefix) {
    auto found = made->find(prefix);
    if (found == made->end()) found = made->emplace(prefix, row(prefix)).first;
    return found->second;
  };
}

template <typename Real>
Distribution<Real> MakeRow(const std::vector<double>& probs) {
  const std::vector<Real> row(probs.begin(), probs.end());
  auto made = Distribution<Real>::FromProbs(row);
  if (!made.ok()) throw std::runtime_error(made.status().ToString());
  return *std::move(made);
}

// Target rows of a proposal, from a function of the prefix.
template <typename Real>
class PrefixRows : public TargetRows<Real> {
 public:
  PrefixRows(const TokenTree& tree, RowOf<Real> row)
      : tree_(tree), row_(std::move(row)), rows_(tree.size() + 1) {}

  absl::StatusOr<const Distribution<Real>*> Row(int32_t node) override {
    if (!rows_[node + 1]) rows_[node + 1] = row_(tree_.PathTokens(node));
    return &*rows_[node + 1];
  }

 private:
  const TokenTree& tree_;
  RowOf<Real> row_;
  std::vector<std::optional<Distribution<Real>>> rows_;
};

// The tokens a round emits.
inline Tokens Emitted(const TokenTree& tree, const VerifyOutcome& outcome) {
  Tokens emitted;
  for (int32_t node : outcome.path) emitted.push_back(tree.tokens[node]);
  emitted.push_back(outcome.next_token);
  return emitted;
}

// A law of sequences of different lengths, drawn on with `row` until all have `length` tokens.
template <typename Real>
Law Extend(const Law& law, size_t length, const RowOf<Real>& row) {
  Law extended;
  const std::function<void(Tokens&, double)> grow = [&](Tokens& tokens, double probability) {
    if (tokens.size() == length) {
      extended[tokens] += probability;
      return;
    }
    const Distribution<Real> next = row(tokens);
    for (size_t i = 0; i < next.probs().size(); ++i) {
      if (!(next.probs()[i] > 0)) continue;
      tokens.push_back(next.IdAt(i));
      grow(tokens, probability * next.probs()[i]);
      tokens.pop_back();
    }
  };
  for (const auto& [tokens, probability] : law) {
    Tokens prefix = tokens;
    grow(prefix, probability);
  }
  return extended;
}

// The law of the first `length` tokens of `row` itself.
template <typename Real>
Law TargetLaw(size_t length, const RowOf<Real>& row) {
  return Extend<Real>({{Tokens{}, 1.0}}, length, row);
}

inline double TotalVariation(const Law& a, const Law& b) {
  double sum = 0;
  for (const auto& [tokens, probability] : a) {
    const auto found = b.find(tokens);
    sum += std::abs(probability - (found == b.end() ? 0.0 : found->second));
  }
  for (const auto& [tokens, probability] : b) {
    if (!a.contains(tokens)) sum += probability;
  }
  return sum / 2;
}

}  // namespace paceline::testing
