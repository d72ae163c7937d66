// What a rule decided, with all that its decisions were made from.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace paceline {

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
  std::vector<JudgedRow>
      judged;  // Of the rows that judged drafted tokens: the root's, then the path's.

  // Becomes empty, in the memory it has.
  void Clear() {
    path.clear();
    next_token = -1;
    trace.clear();
    judged.clear();
  }
};

}  // namespace paceline
