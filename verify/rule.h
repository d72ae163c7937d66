// The interface of acceptance rules: a proposal, target rows and randomness in, decisions out.
//
// A rule never sees a model. It works on a tree, of which a chain is a special case, and is a
// template on the rows' type, so that the double instance proves what the float instance ships.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "sampling/distribution.h"
#include "sampling/proposal.h"
#include "verify/outcome.h"
#include "verify/randomness.h"
#include "verify/rule_memory.h"

namespace paceline {

// Warped target rows of one proposal, made when a rule first asks for them.
template <typename Real>
class TargetRows {
 public:
  virtual ~TargetRows() = default;
  // The row that judges the children of `node` (-1: the root), valid until the rows go.
  virtual absl::StatusOr<const Distribution<Real>*> Row(int32_t node) = 0;
};

// Settings of the lossy rules.
struct RuleOptions {
  double typical_epsilon = 0.09;  // `typical` accepts where p(x) exceeds this,
  double typical_delta = 0.3;     // or this times exp(-entropy), whichever is less.
  bool typical_draw = false;      // Its last token is drawn; otherwise it is the argmax.
  int32_t relaxed_top_n = 10;     // `relaxed` accepts among so many,
  double relaxed_delta = 0.6;     // as far below the largest probability.
  double ensemble_weight = 0.5;   // Share of the target in the mixture of `ensemble`; 1 is exact.

  absl::Status Validate() const;
};

template <typename Real>
struct RuleInput {
  const Proposal<Real>& proposal;
  TargetRows<Real>& rows;
  Randomness& randomness;
  uint32_t position;  // Absolute position of the first drafted token: the committed length.
  RuleOptions options = {};
  bool figures = true;  // Whether judged rows are to be compared; if not, sampled ones are all NaN.
  RuleMemory* memory = nullptr;  // Borrowed, used again from round to round; null: none is.
};

// An empty outcome, in the memory of the last one that was given back.
template <typename Real>
VerifyOutcome StartOutcome(const RuleInput<Real>& input) {
  return input.memory != nullptr ? input.memory->TakeOutcome() : VerifyOutcome();
}

// The same input with other randomness.
template <typename Real>
RuleInput<Real> WithRandomness(const RuleInput<Real>& input, Randomness& randomness) {
  return {input.proposal, input.rows,    randomness,  input.position,
          input.options,  input.figures, input.memory};
}

// What the final token of a round is that refused nothing.
template <typename Real>
Decision FinalDecision(const RuleInput<Real>& input) {
  return input.proposal.tree.empty() ? Decision::kPlain : Decision::kBonus;
}

// Address of the token noise of a position `depth` tokens behind the first drafted one.
template <typename Real>
NoiseAddress TokenNoise(const RuleInput<Real>& input, int32_t depth) {
  return {input.position + static_cast<uint32_t>(depth), Purpose::kToken, 0, 0};
}

}  // namespace paceline
