// What tests of the whole pipeline share: histories, one-call application, expectations on rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "sampling/pipeline.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {

using Tokens = std::vector<int32_t>;

// Owns what a HistoryView points to.
struct History {
  History(Tokens prompt, Tokens output, Tokens drafted_tokens = {})
      : committed(prompt), prompt_length(static_cast<int32_t>(prompt.size())) {
    counts.AddPrompt(prompt);
    counts.AddOutput(output);
    committed.insert(committed.end(), output.begin(), output.end());
    drafted = std::move(drafted_tokens);
  }
  RowContext Context() const {
    RowContext context;
    context.history = {committed, prompt_length, drafted, &counts};
    return context;
  }

  Tokens committed, drafted;
  int32_t prompt_length;
  TokenCounts counts;
};

template <typename Real>
absl::StatusOr<Distribution<Real>> Apply(const std::vector<Real>& logits,
                                         const SamplingOptions& options,
                                         const History& history = History({}, {})) {
  auto pipeline = Pipeline<Real>::Create(options, static_cast<int32_t>(logits.size()));
  if (!pipeline.ok()) return pipeline.status();
  return pipeline->Apply(std::span<const Real>(logits), history.Context());
}

inline std::vector<float> LogOf(const std::vector<double>& probs) {
  std::vector<float> logits;
  for (double prob : probs) logits.push_back(static_cast<float>(std::log(prob)));
  return logits;
}

template <typename Real>
void ExpectProbs(const absl::StatusOr<Distribution<Real>>& row, const std::vector<double>& expected,
                 double tolerance = 1e-6) {
  ASSERT_THAT(row, IsOk());
  for (size_t id = 0; id < expected.size(); ++id) {
    EXPECT_NEAR(row->Prob(static_cast<int32_t>(id)), expected[id], tolerance) << "id " << id;
  }
}

template <typename Real>
std::set<int32_t> Kept(const absl::StatusOr<Distribution<Real>>& row) {
  EXPECT_THAT(row, IsOk());
  std::set<int32_t> kept;
  for (int32_t id = 0; id < row->vocab_size(); ++id) {
    if (row->Prob(id) > 0) kept.insert(id);
  }
  return kept;
}

template <typename Real>
std::vector<Real> RandomLogits(int32_t vocab_size, uint64_t seed) {
  std::vector<Real> logits;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const double u = TokenUniform({seed, 0}, {}, static_cast<uint32_t>(id));
    logits.push_back(u < 0.1 && id > 0 ? -std::numeric_limits<Real>::infinity()
                                       : static_cast<Real>(12 * u - 6));
  }
  return logits;
}

template <typename Real>
std::vector<Real> PlainSoftmax(const std::vector<Real>& logits) {
  const Real max = *std::max_element(logits.begin(), logits.end());
  double mass = 0;
  for (Real logit : logits) mass += std::exp(logit - max);
  std::vector<Real> probs;
  for (Real logit : logits) probs.push_back(static_cast<Real>(std::exp(logit - max) / mass));
  return probs;
}

}  // namespace paceline::testing
