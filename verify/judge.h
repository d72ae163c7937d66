// What rules share: checks of a proposal, figures of a judged row, noise, and the round's last token.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verify/rule.h"
#include "verify/working_row.h"

namespace paceline {

// A node whose children are judged by one target row. Views: lives no longer than proposal and rows.
template <typename Real>
struct Branch {
  int32_t node = -1;              // -1: the root.
  int32_t depth = 0;              // Drafted tokens on the path to the node, itself included.
  NodeList children;              // In draw order; at least one.
  const Distribution<Real>& row;
  const ProposalDist<Real>& draft;

  // The only child, in a chain.
  int32_t child() const { return children.front(); }
};

// The branch under `node`, which must have children. Errors: those of the target's row.
template <typename Real>
absl::StatusOr<Branch<Real>> BranchAt(const RuleInput<Real>& input, int32_t node, int32_t depth);

// kInvalidArgument naming `rule` unless the proposal is a chain, each token picked or drawn.
template <typename Real>
absl::Status CheckChain(const Proposal<Real>& proposal, std::string_view rule);

// kInvalidArgument naming `rule`, what it expects of a node's children, and what came.
absl::Status UnfitDraws(std::string_view rule, std::string_view expected, int32_t node);

// Address of the acceptance coin of drafted node `child`, `depth` tokens behind the first.
template <typename Real>
NoiseAddress AcceptNoise(const RuleInput<Real>& input, int32_t child, int32_t depth);

// Probability of the token of `child` in the row it was drawn from: 1 if it was picked.
// kInvalidArgument if it is 0, which is not the row it was drawn from.
template <typename Real>
absl::StatusOr<double> DraftProbOf(const RuleInput<Real>& input, const Branch<Real>& branch,
                                   int32_t child, size_t draw = 0);

// Figures of the row of a branch (telemetry).
template <typename Real>
JudgedRow JudgeRow(const RuleInput<Real>& input, const Branch<Real>& branch);

// Adds the decision on `child` to the trace. `draft_prob` is NaN where the rule does not read it.
template <typename Real>
void TraceChild(const RuleInput<Real>& input, const Branch<Real>& branch, int32_t child,
                double draft_prob, double uniform, Decision decision, VerifyOutcome& outcome);

// Emits `token`, judged by `row`, as the last one of the round.
template <typename Real>
void EmitToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
               int32_t token, double uniform, Decision decision, VerifyOutcome& outcome);

// Draws from `row`, with the token noise of `depth`.
template <typename Real>
TokenDraw DrawToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth);

// Emits a token drawn from `row` with the token noise of `depth`.
template <typename Real>
void EmitDraw(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
              Decision decision, VerifyOutcome& outcome);

// Emits a token drawn from what is left of `row`.
template <typename Real>
void EmitLeft(const RuleInput<Real>& input, const Distribution<Real>& row,
              const WorkingRow<Real>& left, int32_t depth, VerifyOutcome& outcome);

// Takes the draft row of a chain's position from `left`, scaled: becomes norm((scale * left - q)+),
// where q of a picked token is one-hot. Returns the mass, as WorkingRow::Subtract.
template <typename Real>
double SubtractDraft(const RuleInput<Real>& input, const Branch<Real>& branch, double scale,
                     WorkingRow<Real>& left);

}  // namespace paceline
