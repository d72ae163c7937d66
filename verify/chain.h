// What the rules over chains share: checks, figures of a judged row, and the round's last token.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "verify/rule.h"

namespace paceline {

// kInvalidArgument naming `rule` unless the proposal is a chain.
absl::Status CheckChain(const TokenTree& tree, std::string_view rule);

// Address of the acceptance coin of the drafted token at `depth`.
template <typename Real>
NoiseAddress AcceptNoise(const RuleInput<Real>& input, int32_t depth) {
  return {input.position + static_cast<uint32_t>(depth), Purpose::kAccept,
          static_cast<uint8_t>(depth), 0};
}

// Probability of the drafted token at `depth` in the row it was drawn from: 1 for a deterministic
// draft. kInvalidArgument if it is 0, which is not the row it was drawn from.
template <typename Real>
absl::StatusOr<double> DraftProbAt(const RuleInput<Real>& input, int32_t depth);

// Figures of the row that judges the drafted token at `depth`.
template <typename Real>
JudgedRow JudgeRow(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth);

// Emits `token`, judged by `row`, as the last one of the round.
template <typename Real>
void EmitToken(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
               int32_t token, double uniform, Decision decision, VerifyOutcome& outcome);

// Emits a token drawn from `row` with the token noise of `depth`.
template <typename Real>
void EmitDraw(const RuleInput<Real>& input, const Distribution<Real>& row, int32_t depth,
              Decision decision, VerifyOutcome& outcome);

// Emits a token drawn from norm((scale * row - draft row of `depth`)+); from `row` where rounding
// left nothing (algorithms D.11).
template <typename Real>
void EmitResidual(const RuleInput<Real>& input, double scale, const Distribution<Real>& row,
                  int32_t depth, VerifyOutcome& outcome);

// Sum of (scale * row - draft row of `depth`)+.
template <typename Real>
double ResidualMass(const RuleInput<Real>& input, double scale, const Distribution<Real>& row,
                    int32_t depth);

}  // namespace paceline
