#include "runtime/telemetry.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

void Grow(std::vector<int64_t>& counts, size_t size) {
  if (counts.size() < size) counts.resize(size, 0);
}

// counts[0 .. length) += 1.
void CountPositions(std::vector<int64_t>& counts, int32_t length) {
  for (int32_t i = 0; i < length; ++i) ++counts[i];
}

void MergeCounts(std::vector<int64_t>& counts, const std::vector<int64_t>& more) {
  Grow(counts, more.size());
  for (size_t i = 0; i < more.size(); ++i) counts[i] += more[i];
}

std::optional<double> Ratio(int64_t part, int64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void Telemetry::AddRound(int32_t num_drafted, int32_t depth, int32_t num_accepted,
                         int32_t num_emitted) {
  ++num_rounds;
  num_emitted_tokens += num_emitted;
  if (num_drafted == 0) return;
  ++num_drafts;
  num_draft_tokens += num_drafted;
  num_accepted_tokens += num_accepted;
  for (auto* counts : {&drafted_at, &accepted_at, &reached_at}) Grow(*counts, depth);
  CountPositions(drafted_at, depth);
  CountPositions(accepted_at, num_accepted);
  CountPositions(reached_at, std::min(num_accepted + 1, depth));
  Grow(acceptance_histogram, num_accepted + 1);
  ++acceptance_histogram[num_accepted];
}

void Telemetry::AddJudged(const JudgedRow& row) {
  expected_acceptance.Add(row.expected_acceptance);
  if (!std::isnan(row.deviation)) deviation.Add(row.deviation);
  if (std::isnan(row.total_variation)) return;
  total_variation.Add(row.total_variation);
  if (std::isinf(row.kl)) {
    ++num_infinite_kl;
  } else {
    kl_divergence.Add(row.kl);
  }
}

void Telemetry::Merge(const Telemetry& other) {
  num_rounds += other.num_rounds;
  num_drafts += other.num_drafts;
  num_draft_tokens += other.num_draft_tokens;
  num_accepted_tokens += other.num_accepted_tokens;
  num_emitted_tokens += other.num_emitted_tokens;
  MergeCounts(drafted_at, other.drafted_at);
  MergeCounts(accepted_at, other.accepted_at);
  MergeCounts(reached_at, other.reached_at);
  MergeCounts(acceptance_histogram, other.acceptance_histogram);
  expected_acceptance.Merge(other.expected_acceptance);
  total_variation.Merge(other.total_variation);
  kl_divergence.Merge(other.kl_divergence);
  num_infinite_kl += other.num_infinite_kl;
  deviation.Merge(other.deviation);
  entropy_bits_raw.Merge(other.entropy_bits_raw);
  entropy_bits_warped.Merge(other.entropy_bits_warped);
  survivors.Merge(other.survivors);
  draft_ms += other.draft_ms;
  target_ms += other.target_ms;
  verify_ms += other.verify_ms;
  rounds_ms += other.rounds_ms;
}

std::optional<double> Telemetry::AcceptanceRate() const {
  return Ratio(num_accepted_tokens, num_draft_tokens);
}

std::optional<double> Telemetry::MeanAcceptanceLength() const {
  return Ratio(num_accepted_tokens + num_drafts, num_drafts);
}

std::optional<double> Telemetry::TokensPerRound() const {
  return Ratio(num_emitted_tokens, num_rounds);
}

std::vector<double> Telemetry::AcceptedPerPosition() const {
  std::vector<double> rates;
  for (int64_t accepted : accepted_at) rates.push_back(*Ratio(accepted, num_drafts));
  return rates;
}

std::vector<std::optional<double>> Telemetry::ConditionalAcceptancePerPosition() const {
  std::vector<std::optional<double>> rates;
  for (size_t i = 0; i < accepted_at.size(); ++i) {
    rates.push_back(Ratio(accepted_at[i], reached_at[i]));
  }
  return rates;
}

std::optional<double> Telemetry::JudgedAcceptance() const {
  return Ratio(num_accepted_tokens, expected_acceptance.count);
}

Interval Telemetry::JudgedAcceptanceInterval() const {
  return WilsonInterval(static_cast<double>(num_accepted_tokens), expected_acceptance.count);
}

std::optional<double> Telemetry::TokensPerSecond() const {
  if (!(rounds_ms > 0)) return std::nullopt;
  return static_cast<double>(num_emitted_tokens) * 1000.0 / rounds_ms;
}

}  // namespace paceline
