// One round of verification from raw logits, K = 4 drafted tokens: rules on lazily warped rows
// against the textbook way, which takes the softmax of every row, and against the least that any way
// must read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "bench/rows.h"
#include "sampling/draw.h"
#include "sampling/pipeline.h"
#include "verify/rules.h"

namespace paceline {
namespace {

constexpr int32_t kDraft = 4;   // K
constexpr int kRounds = 16;     // Different rounds, so that acceptance varies.
constexpr int kIterations = 2 * kRounds;
constexpr double kNoise = 1.0;  // How far the draft's logits are from the target's.

using Rows = std::vector<std::vector<float>>;

// Made outside the loops: logits of both models, and what the drafter hands over.
struct Inputs {
  explicit Inputs(int32_t vocab_size, const SamplingOptions& sampling = {})
      : vocab_size(vocab_size), sampling(sampling) {
    auto pipeline = Pipeline<float>::Create(sampling, vocab_size);
    for (int32_t i = 0; i <= kDraft; ++i) {
      target.push_back(PeakedLogits(vocab_size, 100 + i));
      if (i == kDraft) break;
      std::vector<float> draft = target.back();
      for (int32_t id = 0; id < vocab_size; ++id) {
        const double u = TokenUniform({static_cast<uint64_t>(200 + i), 0}, {}, id);
        draft[id] += static_cast<float>(kNoise * (u - 0.5));
      }
      draft_rows.push_back(*pipeline->Apply(std::span<const float>(draft), {}));
    }
  }

  Proposal<float> Draft(uint32_t round, bool sampled) const {
    Proposal<float> proposal;
    for (int32_t i = 0; i < kDraft; ++i) {
      const Distribution<float>& row = draft_rows[i];
      const NoiseAddress address{round * 8 + i, Purpose::kDraft};
      proposal.tree.Add(i - 1, sampled ? row.Draw(Uniform({3, 0}, address)) : row.Argmax());
      proposal.draft_rows.push_back(sampled ? ProposalDist<float>::Sampled(row)
                                            : ProposalDist<float>::Deterministic());
    }
    return proposal;
  }

  int32_t vocab_size;
  SamplingOptions sampling;
  Rows target;  // [K + 1, V]
  std::vector<Distribution<float>> draft_rows;
};

// Warps a row when a rule first asks for it, in memory that rounds share, as the runtime does.
class LazyRows : public TargetRows<float> {
 public:
  LazyRows(const Rows& logits, Pipeline<float>& pipeline)
      : logits_(logits), pipeline_(pipeline), rows_(logits.size()), made_(logits.size()) {}

  void StartRound() { made_.assign(made_.size(), false); }

  absl::StatusOr<const Distribution<float>*> Row(int32_t node) override {
    Distribution<float>& row = rows_[node + 1];
    if (made_[node + 1]) return &row;
    const auto status = pipeline_.Apply(std::span<const float>(logits_[node + 1]), {}, row);
    if (!status.ok()) return status;
    made_[node + 1] = true;
    return &row;
  }

 private:
  const Rows& logits_;
  Pipeline<float>& pipeline_;
  std::vector<Distribution<float>> rows_;
  std::vector<bool> made_;
};

// Softmax of all K + 1 rows in double, min(1, p / q), residual over the full row.
int32_t NaiveRound(const Inputs& inputs, const Proposal<float>& proposal, uint32_t position) {
  std::vector<std::vector<double>> probs;
  for (const auto& logits : inputs.target) {
    const double max = *std::max_element(logits.begin(), logits.end());
    std::vector<double> row;
    double total = 0;
    for (float logit : logits) total += row.emplace_back(std::exp(logit - max));
    for (double& prob : row) prob /= total;
    probs.push_back(std::move(row));
  }
  for (int32_t i = 0; i < kDraft; ++i) {
    const std::span<const float> draft = proposal.draft_rows[i].row().probs();
    const int32_t token = proposal.tree.tokens[i];
    const double accept = std::min(1.0, probs[i][token] / draft[token]);
    if (Uniform({4, 0}, {position + i, Purpose::kAccept}) < accept) continue;
    std::vector<double> residual;
    for (size_t id = 0; id < draft.size(); ++id) {
      residual.push_back(std::max(0.0, probs[i][id] - draft[id]));
    }
    return static_cast<int32_t>(InverseCdf(residual, Uniform({4, 0}, {position + i})));
  }
  return static_cast<int32_t>(InverseCdf(probs[kDraft], Uniform({4, 0}, {position + kDraft})));
}

// Runs `round(proposal, position)`, which returns false if it failed.
template <typename Round>
void Verify(benchmark::State& state, const Inputs& inputs, bool sampled, Round round) {
  std::vector<Proposal<float>> proposals;
  for (uint32_t i = 0; i < kRounds; ++i) proposals.push_back(inputs.Draft(i, sampled));
  uint32_t position = 0;
  for (auto _ : state) {
    if (!round(proposals[position % kRounds], position * 8)) {
      return state.SkipWithError("verification failed");
    }
    ++position;
  }
  state.SetBytesProcessed(state.iterations() * (kDraft + 1) * inputs.vocab_size *
                          static_cast<int64_t>(sizeof(float)));
}

void Naive(benchmark::State& state) {
  const Inputs inputs(static_cast<int32_t>(state.range(0)));
  Verify(state, inputs, true, [&](const Proposal<float>& proposal, uint32_t position) {
    const int32_t token = NaiveRound(inputs, proposal, position);
    benchmark::DoNotOptimize(token);
    return token >= 0;
  });
}

void RunRule(benchmark::State& state, const char* name, bool sampled, bool figures = true,
             const SamplingOptions& sampling = {}) {
  const Inputs inputs(static_cast<int32_t>(state.range(0)), sampling);
  auto pipeline = Pipeline<float>::Create(sampling, inputs.vocab_size);
  const auto rule = FindRule(name);
  if (!pipeline.ok() || !rule.ok()) return state.SkipWithError("no such rule or pipeline");
  StreamRandomness randomness({4, 0}, DrawMethodOf(**rule, {}));
  LazyRows rows(inputs.target, *pipeline);
  RuleMemory memory;
  int64_t accepted = 0;
  Verify(state, inputs, sampled, [&](const Proposal<float>& proposal, uint32_t position) {
    rows.StartRound();
    auto outcome = (*rule)->verify({proposal, rows, randomness, position, {}, figures, &memory});
    if (!outcome.ok()) return false;
    accepted += static_cast<int64_t>(outcome->path.size());
    memory.GiveOutcome(*std::move(outcome));
    return true;
  });
  state.counters["accepted"] =
      benchmark::Counter(static_cast<double>(accepted), benchmark::Counter::kAvgIterations);
}

// How many target rows `standard` reads in each round.
std::vector<size_t> RowsOfRounds(const Inputs& inputs) {
  auto pipeline = Pipeline<float>::Create(inputs.sampling, inputs.vocab_size);
  StreamRandomness randomness({4, 0});
  LazyRows rows(inputs.target, *pipeline);
  std::vector<size_t> judged;
  for (uint32_t round = 0; round < kIterations; ++round) {
    const Proposal<float> proposal = inputs.Draft(round % kRounds, true);
    rows.StartRound();
    const auto outcome = (*FindRule("standard"))->verify({proposal, rows, randomness, round * 8});
    judged.push_back(outcome->path.size() + 1);
  }
  return judged;
}

// Each row that a round judges, read once for its maximum and once for its sum of exponentials: what
// no sampler can do without.
void ReadRows(benchmark::State& state, const SamplingOptions& sampling) {
  const Inputs inputs(static_cast<int32_t>(state.range(0)), sampling);
  const std::vector<size_t> judged = RowsOfRounds(inputs);
  Verify(state, inputs, true, [&](const Proposal<float>&, uint32_t position) {
    for (size_t i = 0; i < judged[position / 8]; ++i) {
      const std::span<const float> row(inputs.target[i]);
      const RowSums sums = SumExp(row, RowMax(row));
      benchmark::DoNotOptimize(sums.mass);
    }
    return true;
  });
}

SamplingOptions MinP() {
  SamplingOptions sampling;
  sampling.min_p = 0.05;
  return sampling;
}

void BarePass(benchmark::State& state) { ReadRows(state, {}); }
void BarePassMinP(benchmark::State& state) { ReadRows(state, MinP()); }
void StandardMinP(benchmark::State& state) { RunRule(state, "standard", true, true, MinP()); }
void Standard(benchmark::State& state) { RunRule(state, "standard", true); }
void StandardAlone(benchmark::State& state) { RunRule(state, "standard", true, false); }
void Block(benchmark::State& state) { RunRule(state, "block", true); }
void Coupled(benchmark::State& state) { RunRule(state, "coupled", true); }
void Match(benchmark::State& state) { RunRule(state, "match", false); }

// bytes_per_second counts all K + 1 rows, read or not: it is a rate of rounds. A whole number of
// cycles, so that every row and every run times the same rounds.
#define PACELINE_VERIFY_BENCH(function, name) \
  BENCHMARK(function)                         \
      ->Name("BM_Verify/" name "/K:4")        \
      ->ArgName("V")                          \
      ->Arg(49152)                            \
      ->Arg(128256)                           \
      ->Iterations(kIterations)

PACELINE_VERIFY_BENCH(Naive, "naive");
PACELINE_VERIFY_BENCH(BarePass, "bare_pass");
PACELINE_VERIFY_BENCH(BarePassMinP, "bare_pass_min_p");
PACELINE_VERIFY_BENCH(Standard, "standard_sampled");
PACELINE_VERIFY_BENCH(StandardMinP, "standard_sampled_min_p");
PACELINE_VERIFY_BENCH(StandardAlone, "standard_sampled_no_figures");
PACELINE_VERIFY_BENCH(Block, "block_sampled");
PACELINE_VERIFY_BENCH(Coupled, "coupled_sampled");
PACELINE_VERIFY_BENCH(Match, "match_deterministic");

}  // namespace
}  // namespace paceline
