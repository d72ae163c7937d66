// One token from one row of logits through the tensor API, against the textbook way in plain ATen:
// softmax, sort, cumsum, gather. One thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "batch/tensor_api.h"
#include "bench/rows.h"

namespace paceline {
namespace {

// A row [1, V] of the kind that the other benchmarks work on.
at::Tensor PeakedRow(int64_t vocab_size) {
  return at::tensor(PeakedLogits(static_cast<int32_t>(vocab_size), 1)).unsqueeze(0);
}

// A draw from the tokens of which keep(probabilities in descending order) is true, a prefix.
template <typename Keep>
at::Tensor DrawSorted(const at::Tensor& logits, Keep keep) {
  const auto [sorted, ids] = logits.softmax(-1).sort(-1, /*descending=*/true);
  const at::Tensor sums = keep(sorted).cumsum(-1);
  const at::Tensor u = at::rand({1, 1}) * sums.slice(-1, -1);
  const at::Tensor place = at::searchsorted(sums, u, /*out_int32=*/false, /*right=*/true);
  return ids.gather(-1, place.clamp_max(ids.size(-1) - 1));
}

void PlainTopK(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor logits = PeakedRow(state.range(0));
  const at::Tensor kept = (at::arange(state.range(0)) < 40).unsqueeze(0);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        DrawSorted(logits, [&](const at::Tensor& probs) { return probs * kept; }));
  }
  CountRow(state);
}

void PlainTopP(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor logits = PeakedRow(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(DrawSorted(logits, [](const at::Tensor& probs) {
      return probs.masked_fill(probs.cumsum(-1) - probs > 0.9, 0);
    }));
  }
  CountRow(state);
}

void SampleRow(benchmark::State& state, const SamplingOptions& options) {
  at::set_num_threads(1);
  const at::Tensor logits = PeakedRow(state.range(0));
  const at::Tensor seeds = at::full({1}, 7, at::kLong);
  at::Tensor positions = at::zeros({1}, at::kLong);
  const std::vector<SamplingOptions> sampling{options};
  Workspace workspace;
  at::Tensor tokens;
  for (auto _ : state) {
    ++positions.mutable_data_ptr<int64_t>()[0];
    if (!Sample({logits}, {seeds, {}, positions}, {}, sampling, workspace, tokens).ok()) {
      return state.SkipWithError("a draw failed");
    }
  }
  CountRow(state);
}

void TopK(benchmark::State& state) {
  SamplingOptions options;
  options.top_k = 40;
  SampleRow(state, options);
}

void TopP(benchmark::State& state) {
  SamplingOptions options;
  options.top_p = 0.9;
  SampleRow(state, options);
}

#define PACELINE_TENSOR_BENCH(function, name) \
  BENCHMARK(function)->Name("BM_SampleTensor/" name)->ArgName("V")->Arg(49152)->Arg(128256)

PACELINE_TENSOR_BENCH(PlainTopK, "aten_top_k_40");
PACELINE_TENSOR_BENCH(TopK, "top_k_40");
PACELINE_TENSOR_BENCH(PlainTopP, "aten_top_p_0.9");
PACELINE_TENSOR_BENCH(TopP, "top_p_0.9");

}  // namespace
}  // namespace paceline
