// One token from one row of logits: settings of the pipeline against the textbook way.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/philox.h"
#include "bench/rows.h"
#include "sampling/pipeline.h"

namespace paceline {
namespace {

// Softmax, full sort, running sum, draw; all vectors made anew. Keeps the mass `top_p`.
int32_t NaiveTopP(const std::vector<float>& logits, double top_p, double u) {
  const float max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> probs;
  for (float logit : logits) probs.push_back(std::exp(static_cast<double>(logit - max)));
  const double total = std::accumulate(probs.begin(), probs.end(), 0.0);
  for (double& prob : probs) prob /= total;
  std::vector<int32_t> order(probs.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return probs[a] > probs[b]; });
  std::vector<double> sums;
  double sum = 0;
  for (int32_t id : order) {
    if (sum >= top_p) break;
    sums.push_back(sum += probs[id]);
  }
  return order[std::upper_bound(sums.begin(), sums.end() - 1, u * sum) - sums.begin()];
}

void Naive(benchmark::State& state) {
  const auto logits = PeakedLogits(static_cast<int32_t>(state.range(0)), 1);
  uint32_t position = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(NaiveTopP(logits, 0.9, Uniform({2, 0}, {position++})));
  }
  CountRow(state);
}

void Sample(benchmark::State& state, const SamplingOptions& options) {
  const auto vocab_size = static_cast<int32_t>(state.range(0));
  const auto logits = PeakedLogits(vocab_size, 1);
  auto pipeline = Pipeline<float>::Create(options, vocab_size);
  if (!pipeline.ok()) return state.SkipWithError(pipeline.status().ToString().c_str());
  uint32_t position = 0;
  for (auto _ : state) {
    const auto row = pipeline->Apply(std::span<const float>(logits), {});
    if (!row.ok()) return state.SkipWithError(row.status().ToString().c_str());
    benchmark::DoNotOptimize(row->Draw(Uniform({2, 0}, {position++})));
  }
  CountRow(state);
}

void NoFilter(benchmark::State& state) { Sample(state, {}); }

void TopK(benchmark::State& state) {
  SamplingOptions options;
  options.top_k = 40;
  Sample(state, options);
}

void TopP(benchmark::State& state) {
  SamplingOptions options;
  options.top_p = 0.9;
  Sample(state, options);
}

void MinP(benchmark::State& state) {
  SamplingOptions options;
  options.min_p = 0.05;
  Sample(state, options);
}

#define PACELINE_SAMPLE_BENCH(function, name) \
  BENCHMARK(function)->Name("BM_Sample/" name)->ArgName("V")->Arg(49152)->Arg(128256)

PACELINE_SAMPLE_BENCH(Naive, "naive_top_p");
PACELINE_SAMPLE_BENCH(NoFilter, "no_filter");
PACELINE_SAMPLE_BENCH(TopK, "top_k");
PACELINE_SAMPLE_BENCH(TopP, "top_p");
PACELINE_SAMPLE_BENCH(MinP, "min_p");

}  // namespace
}  // namespace paceline
