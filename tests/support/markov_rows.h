// The rows of a recorded case (verify.json): targets and drafts as Markov tables or as one row a
// position, and the proposals drawn from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sampling/proposal.h"
#include "tests/support/laws.h"
#include "tests/support/test_data.h"
#include "verify/randomness.h"

namespace paceline::testing {

// Rows indexed by the last token of the prefix, or by position for cases with one row a position.
template <typename Real>
RowOf<Real> Rows(const nlohmann::json& inputs, const std::string& side, const std::string& plain) {
  if (inputs.contains(side + "_root")) {
    const auto root = Numbers<double>(inputs[side + "_root"]);
    std::vector<std::vector<double>> rows;
    for (const auto& row : inputs[side + "_rows"]) rows.push_back(Numbers<double>(row));
    return [=](const Tokens& prefix) {
      return MakeRow<Real>(prefix.empty() ? root : rows[prefix.back()]);
    };
  }
  std::vector<std::vector<double>> rows;
  if (!inputs[plain].empty() && inputs[plain][0].is_array()) {
    for (const auto& row : inputs[plain]) rows.push_back(Numbers<double>(row));
  } else if (!inputs[plain].empty()) {
    rows.push_back(Numbers<double>(inputs[plain]));
  }
  if (inputs.contains("bonus_row")) rows.push_back(Numbers<double>(inputs["bonus_row"]));
  // A case that ends before the bonus row gives none: the last row stands in and is never drawn
  // from.
  return [=](const Tokens& prefix) {
    return MakeRow<Real>(rows[std::min(prefix.size(), rows.size() - 1)]);
  };
}

inline bool OneHotAt(const nlohmann::json& inputs, size_t i) {
  return inputs.contains("one_hot") && inputs["one_hot"][i].get<bool>();
}

template <typename Real>
Proposal<Real> Drafted(const nlohmann::json& inputs) {
  Proposal<Real> proposal;
  const auto draft = Rows<Real>(inputs, "draft", "q");
  const auto tokens = inputs["draft"].get<Tokens>();
  for (size_t i = 0; i < tokens.size(); ++i) {
    proposal.draft_rows.push_back(OneHotAt(inputs, i)
                                      ? ProposalDist<Real>::Deterministic()
                                      : ProposalDist<Real>::Sampled(draft(proposal.tree.tokens)));
    proposal.tree.Add(static_cast<int32_t>(i) - 1, tokens[i]);
  }
  return proposal;
}

// Draws a chain from the draft's rows, or takes its argmax where the case says one-hot.
inline Proposal<double> DrawCase(const nlohmann::json& one, Randomness& randomness) {
  const nlohmann::json& inputs = one["inputs"];
  const nlohmann::json& params = one["params"];
  const auto draft = Rows<double>(inputs, "draft", "q");
  Proposal<double> proposal;
  for (int32_t i = 0; i < params["k"].get<int32_t>(); ++i) {
    Distribution<double> row = draft(proposal.tree.tokens);
    const bool one_hot = OneHotAt(inputs, i);
    const NoiseAddress noise{static_cast<uint32_t>(i), Purpose::kDraft, static_cast<uint8_t>(i)};
    const int32_t token =
        one_hot ? row.Argmax() : row.IdAt(randomness.Draw(noise, row.probs(), row.ids()).index);
    const double drawn_with = row.Prob(token);
    proposal.tree.Add(i - 1, token);
    proposal.draft_rows.push_back(one_hot ? ProposalDist<double>::Deterministic()
                                          : ProposalDist<double>::Sampled(std::move(row)));
    if (params.contains("stop_after_if_q_below") &&
        drawn_with < params["stop_after_if_q_below"].get<double>()) {
      break;
    }
  }
  return proposal;
}

}  // namespace paceline::testing
