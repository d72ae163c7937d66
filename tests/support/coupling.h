// The law of two draws that share Gumbel noise, in closed form (algorithms D.6).
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/support/laws.h"

namespace paceline::testing {

// P(draft = target = token).
inline double CoupledProb(const Distribution<double>& target, const Distribution<double>& draft,
                          int32_t token) {
  const double p = target.Prob(token);
  const double q = draft.Prob(token);
  if (!(p > 0) || !(q > 0)) return 0;
  double sum = 0;
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    sum += std::max(target.Prob(id) / p, draft.Prob(id) / q);
  }
  return 1 / sum;
}

inline double CoupledAcceptance(const Distribution<double>& target,
                                const Distribution<double>& draft) {
  double acceptance = 0;
  for (int32_t id = 0; id < target.vocab_size(); ++id) {
    acceptance += CoupledProb(target, draft, id);
  }
  return acceptance;
}

// The law of one round of `length` drafts: accepted while equal, then the target's own draw.
inline Law CoupledLaw(const RowOf<double>& target, const RowOf<double>& draft, int32_t length) {
  Law law;
  const std::function<void(const Tokens&, double)> grow = [&](const Tokens& accepted,
                                                              double probability) {
    const Distribution<double> row = target(accepted);
    const bool drafted = static_cast<int32_t>(accepted.size()) < length;
    const Distribution<double> drawn_from = drafted ? draft(accepted) : Distribution<double>();
    for (int32_t token = 0; token < row.vocab_size(); ++token) {
      const double both = drafted ? CoupledProb(row, drawn_from, token) : 0.0;
      Tokens next = accepted;
      next.push_back(token);
      if (both > 0) grow(next, probability * both);
      if (row.Prob(token) > both) law[next] += probability * (row.Prob(token) - both);
    }
  };
  grow({}, 1);
  return law;
}

}  // namespace paceline::testing
