#include "batch/tensor_api.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/philox.h"
#include "tests/support/allocations.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

constexpr int64_t kVocab = 40;
constexpr int64_t kRequests = 6;
constexpr int64_t kDraft = 3;

auto Refuses(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

// A batch of chains of 0 to kDraft tokens, padded.
struct Batch {
  at::Tensor tokens, target, probs, seeds, positions;
  std::vector<int64_t> lengths;
};

Batch MakeBatch(at::ScalarType ids = at::kLong) {
  at::manual_seed(5);
  Batch batch;
  batch.target = at::randn({kRequests, kDraft + 1, kVocab}, at::kDouble) * 2;
  const at::Tensor noise = at::randn({kRequests, kDraft, kVocab}, at::kDouble);
  batch.probs = (batch.target.slice(1, 0, kDraft) + noise).softmax(-1);
  batch.tokens =
      batch.probs.reshape({-1, kVocab}).multinomial(1).reshape({kRequests, kDraft}).to(ids);
  for (int64_t b = 0; b < kRequests; ++b) {
    batch.lengths.push_back(b % (kDraft + 1));
    batch.tokens[b].slice(0, batch.lengths.back()).fill_(-1);
  }
  batch.seeds = at::arange(kRequests, at::kLong) + 100;
  batch.positions = at::arange(kRequests, at::kLong) * 11;
  return batch;
}

class TensorApiTest : public ::testing::Test {
 protected:
  VerifySettings Settings(const char* rule = "standard") {
    VerifySettings settings;
    settings.rule = *FindRule(rule);
    settings.sampling = sampling_;
    return settings;
  }
  DraftTensors Padded() {
    DraftTensors draft;
    draft.tokens = batch_.tokens;
    draft.probs = batch_.probs;
    return draft;
  }
  DraftTensors Ragged(at::Tensor& target) {
    std::vector<at::Tensor> tokens, probs, rows;
    std::vector<int64_t> counts;
    for (int64_t b = 0; b < kRequests; ++b) {
      const int64_t length = batch_.lengths[b];
      tokens.push_back(batch_.tokens[b].slice(0, 0, length));
      probs.push_back(batch_.probs[b].slice(0, 0, length));
      rows.push_back(batch_.target[b].slice(0, 0, length + 1));
      counts.push_back((counts.empty() ? 0 : counts.back()) + length);
    }
    target = at::cat(rows);
    DraftTensors draft;
    draft.tokens = at::cat(tokens);
    draft.probs = at::cat(probs);
    draft.cu_num_draft = at::tensor(counts, at::kInt);
    draft.max_draft = kDraft;
    return draft;
  }
  KeyTensors Keys() { return {batch_.seeds, {}, batch_.positions}; }

  absl::Status Run(const DraftTensors& draft, const at::Tensor& target, bool logits = true) {
    return Verify(draft, {target, logits}, Keys(), Settings(), workspace_, result_);
  }

  Batch batch_ = MakeBatch();
  std::vector<SamplingOptions> sampling_{SamplingOptions()};
  Workspace workspace_;
  VerifyResult result_;
};

TEST_F(TensorApiTest, RaggedRowsAreThePaddedOnes) {
  sampling_[0].temperature = 0.8;
  sampling_[0].top_p = 0.9;
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const VerifyResult padded = result_;
  result_ = {};
  at::Tensor target;
  const DraftTensors ragged = Ragged(target);
  ASSERT_THAT(Run(ragged, target), IsOk());
  EXPECT_TRUE(at::equal(result_.tokens, padded.tokens)) << result_.tokens << padded.tokens;
  EXPECT_TRUE(at::equal(result_.num_accepted, padded.num_accepted));
  EXPECT_TRUE(at::equal(result_.path, padded.path));
  EXPECT_GT(padded.num_accepted.sum().item<int64_t>(), 0);
  // Tokens end behind the last one; nothing beyond a request's own draft is accepted.
  for (int64_t b = 0; b < kRequests; ++b) {
    const int64_t accepted = padded.num_accepted[b].item<int64_t>();
    EXPECT_LE(accepted, batch_.lengths[b]);
    EXPECT_GE(padded.tokens[b][accepted].item<int64_t>(), 0);
    EXPECT_TRUE((padded.tokens[b].slice(0, accepted + 1) == -1).all().item<bool>());
  }
}

TEST_F(TensorApiTest, RequestsDoNotKnowOfEachOther) {
  sampling_.resize(kRequests);
  for (int64_t b = 0; b < kRequests; ++b) sampling_[b].temperature = 0.3 * static_cast<double>(b);
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const VerifyResult whole = result_;
  for (int64_t b = 0; b < kRequests; ++b) {
    DraftTensors draft;
    draft.tokens = batch_.tokens.slice(0, b, b + 1);
    draft.probs = batch_.probs.slice(0, b, b + 1);
    VerifySettings settings = Settings();
    settings.sampling = settings.sampling.subspan(b, 1);
    VerifyResult alone;
    ASSERT_THAT(Verify(draft, {batch_.target.slice(0, b, b + 1)},
                       {batch_.seeds.slice(0, b, b + 1), {}, batch_.positions.slice(0, b, b + 1)},
                       settings, workspace_, alone),
                IsOk());
    EXPECT_TRUE(at::equal(alone.tokens[0], whole.tokens[b]));
  }
}

TEST_F(TensorApiTest, ThreadsDoNotChangeAnything) {
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const at::Tensor tokens = result_.tokens.clone();
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 5}) {
    at::set_num_threads(count);
    ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
    EXPECT_TRUE(at::equal(result_.tokens, tokens)) << count << " threads";
  }
  at::set_num_threads(threads);
}

TEST_F(TensorApiTest, TypesAndStridesAreTakenAsTheyCome) {
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const VerifyResult wide = result_;
  // Ids of 32 bits, and a target whose last dimension is not the innermost one.
  DraftTensors draft = Padded();
  draft.tokens = batch_.tokens.to(at::kInt);
  const at::Tensor strided = batch_.target.transpose(1, 2).contiguous().transpose(1, 2);
  ASSERT_FALSE(strided.is_contiguous());
  ASSERT_THAT(Run(draft, strided), IsOk());
  EXPECT_EQ(result_.tokens.scalar_type(), at::kInt);
  EXPECT_TRUE(at::equal(result_.tokens.to(at::kLong), wide.tokens));
  // Logits of 16 bits are those of 32 that they stand for.
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor halves = batch_.target.to(type);
    ASSERT_THAT(Run(Padded(), halves), IsOk());
    const at::Tensor of_halves = result_.tokens.clone();
    ASSERT_THAT(Run(Padded(), halves.to(at::kFloat)), IsOk());
    EXPECT_TRUE(at::equal(result_.tokens, of_halves));
  }
}

TEST_F(TensorApiTest, ResultsKeepTheirMemory) {
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const void* const tokens = result_.tokens.const_data_ptr();
  const void* const path = result_.path.const_data_ptr();
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  EXPECT_EQ(result_.tokens.const_data_ptr(), tokens);
  EXPECT_EQ(result_.path.const_data_ptr(), path);
}

TEST_F(TensorApiTest, AllocatesNothingOnceItHasItsMemory) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  sampling_[0].top_p = 0.9;
  at::Tensor target;
  const DraftTensors padded = Padded();
  const DraftTensors ragged = Ragged(target);
  at::Tensor probs, tokens;
  VerifyResult of_ragged;
  bool ok = true;
  const KeyTensors keys = Keys();
  const VerifySettings settings = Settings();
  const at::Tensor rows = batch_.target.select(1, 0).contiguous();
  const at::Tensor no_index;
  const auto run_all = [&] {
    ok &= Verify(padded, {batch_.target}, keys, settings, workspace_, result_).ok();
    ok &= Verify(ragged, {target}, keys, settings, workspace_, of_ragged).ok();
    ok &= WarpProbs(batch_.target, sampling_, workspace_, probs).ok();
    ok &= Sample({rows}, keys, no_index, sampling_, workspace_, tokens).ok();
  };
  for (int i = 0; i < 3; ++i) run_all();
  EXPECT_EQ(testing::CountAllocations(run_all), 0);
  EXPECT_TRUE(ok);
  at::set_num_threads(threads);
}

TEST_F(TensorApiTest, EmptyBatchesAndEmptyDraftsWork) {
  DraftTensors none;
  none.tokens = at::empty({0, kDraft}, at::kLong);
  VerifyResult result;
  VerifySettings settings = Settings();
  EXPECT_THAT(Verify(none, {at::empty({0, kDraft + 1, kVocab})},
                     {at::empty({0}, at::kLong), {}, at::empty({0}, at::kLong)}, settings,
                     workspace_, result),
              IsOk());
  EXPECT_EQ(result.tokens.sizes(), at::IntArrayRef({0, kDraft + 1}));
  none.tokens = at::empty({kRequests, 0}, at::kLong);
  const at::Tensor rows = batch_.target.slice(1, 0, 1);
  EXPECT_THAT(Verify(none, {rows}, Keys(), settings, workspace_, result), IsOk());
  EXPECT_EQ(result.tokens.sizes(), at::IntArrayRef({kRequests, 1}));
  // Nothing drafted: a plain draw, as Sample makes it.
  at::Tensor sampled;
  ASSERT_THAT(Sample({rows.select(1, 0)}, Keys(), {}, sampling_, workspace_, sampled), IsOk());
  EXPECT_TRUE(at::equal(result.tokens.squeeze(1), sampled));
}

TEST_F(TensorApiTest, OneBadRequestNamesItselfAndLeavesTheOthers) {
  ASSERT_THAT(Run(Padded(), batch_.target), IsOk());
  const at::Tensor sound = result_.tokens.clone();
  at::Tensor target = batch_.target.clone();
  target[4][0][9] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Run(Padded(), target), Refuses("request 4: target[0]: "));
  EXPECT_TRUE((result_.tokens[4] == -1).all().item<bool>());
  EXPECT_EQ(result_.num_accepted[4].item<int64_t>(), -1);
  for (const int64_t b : {0, 1, 2, 3, 5}) EXPECT_TRUE(at::equal(result_.tokens[b], sound[b]));
}

TEST_F(TensorApiTest, WrongTensorsAreNamed) {
  DraftTensors draft = Padded();
  EXPECT_THAT(Run({}, batch_.target), Refuses("draft_tokens: expected a tensor, got none"));
  draft.tokens = batch_.tokens.to(at::kDouble);
  EXPECT_THAT(Run(draft, batch_.target),
              Refuses("draft_tokens: expected int32 or int64, got Double [6, 3]"));
  draft.tokens = batch_.tokens[0];
  EXPECT_THAT(Run(draft, batch_.target), Refuses("draft_tokens: expected [B, K], got Long [3]"));
  draft = Padded();
  EXPECT_THAT(Run(draft, batch_.target.slice(1, 0, kDraft)),
              Refuses("target: expected [B, 1 + drafted tokens, .] of 24 rows"));
  EXPECT_THAT(Run(draft, batch_.target.to(at::kInt)), Refuses("target: expected rows of"));
  EXPECT_THAT(Run(draft, batch_.target.slice(2, 0, 39).contiguous()),
              Refuses("draft: expected rows of 39"));
  EXPECT_THAT(Run(draft, batch_.target.softmax(-1).to(at::kHalf), false),
              Refuses("target: expected rows of float32 or float64"));
  EXPECT_THAT(Run(draft, batch_.target, false), Refuses("request 0: target[0]: probs"));
  draft.probs = batch_.probs.slice(1, 0, 2);
  EXPECT_THAT(Run(draft, batch_.target), Refuses("draft: expected [B, K, .] of 18 rows"));
  draft.probs = at::Tensor();
  draft.ids = batch_.tokens;
  EXPECT_THAT(Run(draft, batch_.target), Refuses("draft_ids: expected none without draft"));
  draft = Padded();
  draft.parents = batch_.tokens;
  draft.first_child = batch_.tokens;
  EXPECT_THAT(Run(draft, batch_.target), Refuses("expected at most one of them"));
  draft = Padded();
  draft.tokens =
      at::empty({kRequests, kDraft}, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
  EXPECT_THAT(Run(draft, batch_.target),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("draft_tokens: expected a tensor on the CPU, got one on meta")));
  sampling_.resize(2);
  EXPECT_THAT(Run(Padded(), batch_.target), Refuses("sampling: expected one setting, or 6"));
}

TEST_F(TensorApiTest, ARuleIsNeeded) {
  EXPECT_THAT(Verify(Padded(), {batch_.target}, Keys(), {}, workspace_, result_),
              Refuses("rule: expected one, got none"));
}

TEST_F(TensorApiTest, KeysAreChecked) {
  batch_.positions[3] = -1;
  EXPECT_THAT(Run(Padded(), batch_.target), Refuses("positions[3]: expected a number in [0, "));
  batch_ = MakeBatch();
  batch_.seeds = batch_.seeds.slice(0, 0, 2);
  EXPECT_THAT(Run(Padded(), batch_.target), Refuses("seeds: expected one number, or 6"));
  batch_.seeds = at::Tensor();
  EXPECT_THAT(Run(Padded(), batch_.target), Refuses("seeds: expected a tensor, got none"));
}

TEST_F(TensorApiTest, CountsAreChecked) {
  at::Tensor target;
  DraftTensors draft = Ragged(target);
  draft.cu_num_draft[2] = 0;
  EXPECT_THAT(Run(draft, target), Refuses("cu_num_draft[2]: expected a number in [1, 4], got 0"));
  draft = Ragged(target);
  draft.cu_num_draft[5] = 6;
  EXPECT_THAT(Run(draft, target), Refuses("cu_num_draft: expected the last to be 7"));
  draft = Ragged(target);
  draft.max_draft = 2;
  EXPECT_THAT(Run(draft, target), Refuses("cu_num_draft[3]: expected a number in [3, 5], got 6"));
  draft.max_draft = -4;
  EXPECT_THAT(Run(draft, target), Refuses("max_draft"));
}

TEST_F(TensorApiTest, WarpsRowsAsThePipelineDoes) {
  sampling_[0].temperature = 0.7;
  sampling_[0].top_k = 5;
  at::Tensor probs;
  ASSERT_THAT(WarpProbs(batch_.target, sampling_, workspace_, probs), IsOk());
  EXPECT_EQ(probs.sizes(), batch_.target.sizes());
  const auto kth = std::get<0>(batch_.target.topk(5, -1)).select(-1, 4).unsqueeze(-1);
  const at::Tensor expected =
      (batch_.target / 0.7)
          .masked_fill(batch_.target < kth, -std::numeric_limits<double>::infinity())
          .softmax(-1);
  EXPECT_LT((probs - expected).abs().max().item<double>(), 1e-15);
  ASSERT_THAT(WarpProbs(batch_.target.to(at::kFloat), sampling_, workspace_, probs), IsOk());
  EXPECT_EQ(probs.scalar_type(), at::kFloat);
  EXPECT_LT((probs - expected).abs().max().item<double>(), 1e-6);
  // Rows are counted over all requests.
  at::Tensor bad = batch_.target.clone();
  bad[1][2][3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(WarpProbs(bad, sampling_, workspace_, probs), Refuses("row 6: "));
  sampling_[0].xtc_probability = 0.5;
  EXPECT_THAT(WarpProbs(batch_.target, sampling_, workspace_, probs),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("xtc_probability")));
}

// A drafter's numbers are its own: those of the draft's place, not of the target's draw.
TEST_F(TensorApiTest, DraftsAreDrawnWithTheirOwnNumbers) {
  const at::Tensor rows = batch_.target.select(1, 0).softmax(-1);
  at::Tensor tokens;
  const at::Tensor index = at::full({1}, 2, at::kLong);
  ASSERT_THAT(Sample({rows, false}, Keys(), index, sampling_, workspace_, tokens), IsOk());
  for (int64_t b = 0; b < kRequests; ++b) {
    const NoiseAddress address{static_cast<uint32_t>(b * 11 + 2), Purpose::kDraft, 2};
    const at::Tensor row = rows[b].contiguous();
    const std::span<const double> probs(row.const_data_ptr<double>(), kVocab);
    const double u = Uniform({static_cast<uint64_t>(100 + b), 0}, address);
    EXPECT_EQ(tokens[b].item<int64_t>(), InverseCdf(probs, u));
  }
}

}  // namespace
}  // namespace paceline
