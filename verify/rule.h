// The interface of acceptance rules: a proposal, target rows and randomness in, decisions out.
//
// A rule never sees a model. It works on a tree, of which a chain is a special case, and is a
// template on the rows' type, so that the double instance proves what the float instance ships.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sampling/distribution.h"
#include "sampling/proposal.h"
#include "verify/randomness.h"

namespace paceline {

// Warped target rows of one proposal, made when a rule first asks for them.
template <typename Real>
class TargetRows {
 public:
  virtual ~TargetRows() = default;
  // The row that judges the children of `node` (-1: the root), valid until the rows go.
  virtual absl::StatusOr<const Distribution<Real>*> Row(int32_t node) = 0;
};

enum class Decision {
  kAccepted,   // A drafted token was kept.
  kRejected,   // A drafted token was refused: the round ends here.
  kRecovered,  // The token emitted in place of a refused one.
  kBonus,      // The token emitted after everything was accepted.
  kPlain,      // The token of a round in which nothing was drafted.
};

std::string_view DecisionName(Decision decision);

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// One judged or emitted token, enough to replay the decision.
struct TokenTrace {
  uint32_t position = 0;  // Absolute position of the token.
  int32_t node = -1;      // TokenTree index; -1 for a token that was not drafted.
  int32_t token = 0;
  double target_prob = kNoNumber;  // In the row that judged it.
  double draft_prob = kNoNumber;   // In the row it was drawn from; 1 for a deterministic draft.
  double uniform = kNoNumber;      // Coin of a decision, noise of a draw.
  Decision decision = Decision::kAccepted;
};

// Figures of one judged row, known whether or not the token was accepted.
struct JudgedRow {
  double expected_acceptance = kNoNumber;  // sum min(p, q); of a deterministic draft p(children).
  double total_variation = kNoNumber;      // Sampled rows only, as kl.
  double kl = kNoNumber;                   // Nats; infinite where q = 0 < p.
  double deviation = kNoNumber;  // Total variation of a lossy rule's token from the target's row.
};

struct VerifyOutcome {
  std::vector<int32_t> path;      // Accepted nodes, TokenTree indices, root side first.
  int32_t next_token = -1;        // The recovered or bonus token.
  std::vector<TokenTrace> trace;  // In order of position.
  std::vector<JudgedRow> judged;  // Of the rows that judged drafted tokens: the root's, then the path's.
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
};

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
