// Counters and measures of speculation. Names and definitions: docs/telemetry.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/statistics.h"
#include "verify/rule.h"

namespace paceline {

// Sum of a measure over rows, whose mean is null without rows.
struct Mean {
  double sum = 0;
  int64_t count = 0;

  void Add(double value) {
    sum += value;
    ++count;
  }
  void Merge(const Mean& other) {
    sum += other.sum;
    count += other.count;
  }
  std::optional<double> Value() const {
    return count > 0 ? std::optional<double>(sum / static_cast<double>(count)) : std::nullopt;
  }
};

// What happened in the rounds of one sequence, or of several merged. Rates without trials are null.
struct Telemetry {
  int64_t num_rounds = 0;            // Target passes after the prompt.
  int64_t num_drafts = 0;            // Rounds that proposed something.
  int64_t num_draft_tokens = 0;      // Proposed and verified.
  int64_t num_accepted_tokens = 0;   // Accepted and committed.
  int64_t num_emitted_tokens = 0;    // Committed by rounds.
  std::vector<int64_t> drafted_at;   // Drafts that drafted position i (from 0).
  std::vector<int64_t> accepted_at;  // Drafts that accepted position i.
  std::vector<int64_t> reached_at;   // Drafts that drafted position i and accepted all before it.
  std::vector<int64_t> acceptance_histogram;  // Drafts by number of accepted tokens.

  Mean expected_acceptance;  // Over judged rows: sum min(p, q), or p of a deterministic draft.
  Mean total_variation;      // Over judged sampled rows.
  Mean kl_divergence;        // Nats, over judged sampled rows where it is finite.
  int64_t num_infinite_kl = 0;
  Mean deviation;  // Of lossy rules: total variation of the emitted token from the target's row.
  Mean entropy_bits_raw;     // Over judged rows: of the model's row,
  Mean entropy_bits_warped;  // and of the row after every stage.
  Mean survivors;            // Tokens with a positive probability after every stage.

  double draft_ms = 0;   // Proposing.
  double target_ms = 0;  // Target passes; of a batch, this sequence's share.
  double verify_ms = 0;  // Stages, rule and commit.
  double rounds_ms = 0;  // All time after the prompt.

  // Counts a round that drafted and accepted so many tokens along its path, and committed
  // `num_emitted`. `num_drafted` counts the nodes of a tree; `depth` is its longest path (of a
  // chain the same).
  void AddRound(int32_t num_drafted, int32_t depth, int32_t num_accepted, int32_t num_emitted);
  void AddJudged(const JudgedRow& row);
  void Merge(const Telemetry& other);

  std::optional<double> AcceptanceRate() const;
  std::optional<double> MeanAcceptanceLength() const;  // Bonus included.
  std::optional<double> TokensPerRound() const;
  std::vector<double> AcceptedPerPosition() const;
  std::vector<std::optional<double>> ConditionalAcceptancePerPosition() const;
  // Accepted share of the drafted tokens that were judged, not those behind a refusal: what
  // expected_acceptance predicts. With its Wilson interval.
  std::optional<double> JudgedAcceptance() const;
  Interval JudgedAcceptanceInterval() const;
  std::optional<double> TokensPerSecond() const;
};

}  // namespace paceline
