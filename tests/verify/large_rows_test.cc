// Rules on rows of real sizes: what they compare and what they draw from, entry by entry.
#include "tests/support/large_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "base/philox.h"
#include "sampling/pipeline.h"
#include "tests/support/status_matchers.h"
#include "verify/given_rows.h"
#include "verify/rules.h"

namespace paceline {
namespace {

using testing::IsOk;
using testing::kMasked;
using testing::kRowKinds;
using testing::kRowSizes;
using testing::LargeRow;
using testing::RowKind;

template <typename Real>
Distribution<Real> Warp(const std::vector<float>& logits, const SamplingOptions& options) {
  auto pipeline = Pipeline<Real>::Create(options, static_cast<int32_t>(logits.size()));
  const auto row = pipeline->Apply(std::span<const float>(logits), {});
  EXPECT_THAT(row, IsOk());
  return *row;
}

// Answers coins as told and keeps what was asked.
class Recorder : public Randomness {
 public:
  explicit Recorder(bool accepts) : accepts_(accepts) {}

  CoinFlip Coin(const NoiseAddress&, double target_prob, double draft_prob) override {
    this->target_prob = target_prob;
    this->draft_prob = draft_prob;
    return {accepts_, 0.5};
  }
  TokenDraw Draw(const NoiseAddress&, std::span<const float> weights,
                 std::span<const int32_t> ids) override {
    return Keep({weights.begin(), weights.end()}, ids);
  }
  TokenDraw Draw(const NoiseAddress&, std::span<const double> weights,
                 std::span<const int32_t> ids) override {
    return Keep({weights.begin(), weights.end()}, ids);
  }

  double target_prob = -1;
  double draft_prob = -1;
  std::vector<double> weights;
  std::vector<int32_t> ids;

 private:
  TokenDraw Keep(std::vector<double> from, std::span<const int32_t> tokens) {
    weights = std::move(from);
    ids.assign(tokens.begin(), tokens.end());
    return {std::max_element(weights.begin(), weights.end()) - weights.begin(), 0.5};
  }
  bool accepts_;
};

Recorder Judge(const Rule& rule, const Distribution<float>& target,
               const Distribution<float>& draft, int32_t token, bool accepts) {
  Proposal<float> proposal;
  proposal.tree.Add(-1, token);
  proposal.draft_rows.push_back(ProposalDist<float>::Sampled(draft));
  GivenRows<float> rows({target, target});
  Recorder recorder(accepts);
  const auto outcome = rule.verify({proposal, rows, recorder, 0, {}, false});
  EXPECT_THAT(outcome, IsOk());
  return recorder;
}

// Total variation of the token that `standard` emits for one drafted token from `truth`: the coins
// are known to compare p and q, `left` is what is drawn from after a refusal.
double Bias(const Distribution<float>& target, const Distribution<float>& draft,
            const std::vector<double>& left, const Distribution<double>& truth) {
  const std::vector<float> p = target.Dense();
  const std::vector<float> q = draft.Dense();
  const std::vector<double> law = truth.Dense();
  double mass_q = 0, mass_left = 0, accepted = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    mass_q += q[i];
    mass_left += left[i];
  }
  // Drafts are drawn from q over its own sum.
  for (size_t i = 0; i < p.size(); ++i) accepted += std::min(p[i], q[i]) / mass_q;
  double distance = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double recovered = mass_left > 0 ? (1 - accepted) * left[i] / mass_left : 0;
    distance += std::abs(std::min(p[i], q[i]) / mass_q + recovered - law[i]) / 2;
  }
  return distance;
}

std::vector<double> ByToken(const Recorder& recorder, int32_t size) {
  std::vector<double> dense(size, 0.0);
  for (size_t i = 0; i < recorder.weights.size(); ++i) {
    dense[recorder.ids.empty() ? i : recorder.ids[i]] = recorder.weights[i];
  }
  return dense;
}

SamplingOptions With(double temperature, int32_t top_k, double min_p) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.min_p = min_p;
  return options;
}

TEST(LargeRowsTest, StandardComparesAndLeavesWhatItsLawSays) {
  const Rule& standard = **FindRule("standard");
  const SamplingOptions settings[] = {With(1, 0, 0), With(0.7, 0, 0), With(1, 40, 0),
                                      With(1, 0, 0.02)};
  double largest = 0;
  for (const int32_t size : kRowSizes) {
    for (const RowKind kind : kRowKinds) {
      for (const SamplingOptions& options : settings) {
        const auto logits = LargeRow(kind, size, 1);
        const Distribution<float> target = Warp<float>(logits, options);
        const Distribution<float> draft = Warp<float>(LargeRow(kind, size, 2), options);
        // Tokens of every rank: the likeliest, the least likely, and some between.
        for (size_t i = 0; i < draft.probs().size(); i += 1 + draft.probs().size() / 7) {
          if (!(draft.probs()[i] > 0)) continue;
          const int32_t token = draft.IdAt(i);
          const Recorder accepted = Judge(standard, target, draft, token, true);
          EXPECT_EQ(accepted.target_prob, target.Prob(token));
          EXPECT_EQ(accepted.draft_prob, draft.Prob(token));
          // All accepted: the bonus is drawn from the target's row.
          EXPECT_TRUE(std::equal(accepted.weights.begin(), accepted.weights.end(),
                                 target.probs().begin(), target.probs().end()));
        }
        const Recorder refused = Judge(standard, target, draft, draft.Argmax(), false);
        const std::vector<double> left = ByToken(refused, size);
        const std::vector<float> p = target.Dense();
        const std::vector<float> q = draft.Dense();
        double residual_mass = 0;
        for (int32_t id = 0; id < size; ++id) {
          residual_mass += std::max(static_cast<double>(p[id]) - q[id], 0.0);
        }
        for (int32_t id = 0; id < size; ++id) {
          // Where nothing is left it is the target itself (algorithms D.11).
          const double expected = residual_mass > 0
                                      ? std::max(static_cast<double>(p[id]) - q[id], 0.0)
                                      : static_cast<double>(p[id]);
          ASSERT_EQ(left[id], expected) << "V " << size << ", token " << id;
        }
        const double bias = Bias(target, draft, left, Warp<double>(logits, options));
        largest = std::max(largest, bias);
        EXPECT_LE(bias, 1e-6) << "V " << size << ", kind " << static_cast<int>(kind);
      }
    }
  }
  std::printf("[float32] standard, V to 128256: largest total variation %.2g\n", largest);
}

// Every rule that takes a sampled chain, on every row: tokens of the vocabulary that have a
// probability, whatever the noise.
TEST(LargeRowsTest, EveryRuleEmitsTokensThatTheTargetKnows) {
  for (const int32_t size : kRowSizes) {
    for (const RowKind kind : kRowKinds) {
      const SamplingOptions options;
      std::vector<Distribution<float>> rows;
      for (uint64_t i = 0; i < 4; ++i)
        rows.push_back(Warp<float>(LargeRow(kind, size, 10 + i), options));
      const Distribution<float> draft = Warp<float>(LargeRow(kind, size, 20), options);
      for (const Rule& rule : Rules()) {
        for (uint64_t seed = 0; seed < 4; ++seed) {
          Proposal<float> proposal;
          for (uint32_t i = 0; i < 3; ++i) {
            proposal.tree.Add(static_cast<int32_t>(i) - 1, draft.Draw(Uniform({seed, 7}, {i})));
            proposal.draft_rows.push_back(ProposalDist<float>::Sampled(draft));
          }
          GivenRows<float> given(rows);
          StreamRandomness randomness({seed, 0}, DrawMethodOf(rule, options));
          const auto outcome = rule.verify({proposal, given, randomness, 0, {}, false});
          ASSERT_THAT(outcome, IsOk()) << rule.name;
          ASSERT_GE(outcome->next_token, 0) << rule.name;
          ASSERT_LT(outcome->next_token, size) << rule.name;
          if (rule.lossless) {
            EXPECT_GT(rows[outcome->path.size()].Prob(outcome->next_token), 0) << rule.name;
            for (size_t i = 0; i < outcome->path.size(); ++i) {
              EXPECT_GT(rows[i].Prob(proposal.tree.tokens[i]), 0) << rule.name;
            }
          }
        }
      }
    }
  }
}

// NaN and +inf never come so far: the row is refused where it is made.
TEST(LargeRowsTest, UnsoundRowsAreRefusedAtEverySize) {
  for (const int32_t size : kRowSizes) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -kMasked}) {
      auto logits = LargeRow(RowKind::kPeaked, size, 3);
      logits[size - 1] = bad;
      auto pipeline = Pipeline<float>::Create({}, size);
      EXPECT_THAT(pipeline->Apply(std::span<const float>(logits), {}),
                  testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                    ::testing::HasSubstr(std::to_string(size - 1))));
    }
    const std::vector<float> masked(size, kMasked);
    auto pipeline = Pipeline<float>::Create({}, size);
    EXPECT_THAT(pipeline->Apply(std::span<const float>(masked), {}),
                testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                  ::testing::HasSubstr("no_token_left")));
  }
}

}  // namespace
}  // namespace paceline
