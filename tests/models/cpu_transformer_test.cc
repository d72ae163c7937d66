// The fast engine against golden logits, and its promise: what a row gives does not depend on what
// shares its pass.
#include "models/cpu/cpu_transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "models/cpu/machine.h"
#include "models/weight_source.h"
#include "tests/support/monte_carlo.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using cpu::RunnableIsas;
using testing::DataPath;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Numbers;
using testing::ReadJson;
using testing::StatusIs;

using Tokens = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;

std::unique_ptr<LanguageModel> Load(const std::string& path, const ModelOptions& options = {}) {
  auto source = OpenModel(path);
  EXPECT_THAT(source, IsOk());
  auto model = LoadCpuModel(**source, options);
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

Rows Forward(LanguageModel& model, const std::vector<Segment>& segments, int32_t num_layers = 0) {
  auto output = model.Forward({segments, num_layers});
  EXPECT_THAT(output, IsOk());
  Rows rows;
  for (int64_t row = 0; row < output->num_rows(); ++row) {
    rows.emplace_back(output->Row(row).begin(), output->Row(row).end());
  }
  return rows;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    largest = std::isnan(difference) ? 1e300 : std::max(largest, difference);
  }
  return largest;
}

// ---- Golden logits of a tiny checkpoint. Halves in the cache and int8 activations cost precision:
// the bounds are twice what was measured, far below what a wrong formula gives (logits are of order
// 1).

struct Golden {
  const char* file;
  const char* expected;
  double bound;
};

class CpuGoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(CpuGoldenTest, LogitsAreNearTheOracle) {
  const auto expected = ReadJson(std::string("models/") + GetParam().expected);
  const auto input = expected["input_ids"].get<Tokens>();
  for (const std::string& isa : RunnableIsas()) {
    const auto model = Load(DataPath(std::string("models/") + GetParam().file), {.isa = isa});
    const Rows rows = Forward(*model, {{model->cache().Create(), input, {}, RowWish::kAll}});
    const double difference =
        std::max(LargestDifference(rows.back(), Numbers<float>(expected["logits_last"])),
                 LargestDifference(rows[5], Numbers<float>(expected["logits_row5"])));
    std::printf("[cpu] %s, %s: largest difference %.2e\n", GetParam().file, isa.c_str(),
                difference);
    EXPECT_LE(difference, GetParam().bound) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Types, CpuGoldenTest,
    ::testing::Values(Golden{"llama/model-f32.gguf", "llama/expected.json", 4e-3},
                      Golden{"llama/model-f16.gguf", "llama/expected-f16.json", 4e-3},
                      Golden{"llama/model-bf16.gguf", "llama/expected-bf16.json", 4e-3},
                      Golden{"llama/model-q8_0.gguf", "llama/expected-q8_0.json", 0.2},
                      Golden{"llama/model-q4_0.gguf", "llama/expected-q4_0.json", 0.2},
                      Golden{"llama/model-q4_1.gguf", "llama/expected-q4_1.json", 0.2}));

INSTANTIATE_TEST_SUITE_P(
    Families, CpuGoldenTest,
    ::testing::Values(Golden{"llama3-rope/model-f32.gguf", "llama3-rope/expected.json", 4e-3},
                      Golden{"llama-untied/model-f32.gguf", "llama-untied/expected.json", 4e-3},
                      Golden{"mistral/model-f32.gguf", "mistral/expected.json", 4e-3},
                      Golden{"qwen2/model-f32.gguf", "qwen2/expected.json", 4e-3},
                      Golden{"qwen2-untied/model-f32.gguf", "qwen2-untied/expected.json", 4e-3},
                      Golden{"qwen3/model-f32.gguf", "qwen3/expected.json", 4e-3},
                      Golden{"gemma3/model-f32.gguf", "gemma3/expected.json", 4e-3},
                      Golden{"gemma3/model-f32-nopattern.gguf", "gemma3/expected-nopattern.json",
                             4e-3},
                      Golden{"gpt2/model-f32.gguf", "gpt2/expected.json", 4e-3}));

INSTANTIATE_TEST_SUITE_P(
    Folders, CpuGoldenTest,
    ::testing::Values(Golden{"llama/config.json", "llama/expected.json", 4e-3},
                      Golden{"llama-bf16/config.json", "llama-bf16/expected.json", 4e-3},
                      Golden{"llama-f16/config.json", "llama-f16/expected.json", 4e-3},
                      Golden{"llama-sharded/config.json", "llama-sharded/expected.json", 4e-3},
                      Golden{"llama-tied-with-head/config.json", "llama-tied-with-head/expected.json", 4e-3},
                      Golden{"llama-untied/config.json", "llama-untied/expected.json", 4e-3},
                      Golden{"llama3-rope/config.json", "llama3-rope/expected.json", 4e-3},
                      Golden{"mistral/config.json", "mistral/expected.json", 4e-3},
                      Golden{"qwen2/config.json", "qwen2/expected.json", 4e-3},
                      Golden{"qwen2-untied/config.json", "qwen2-untied/expected.json", 4e-3},
                      Golden{"qwen3/config.json", "qwen3/expected.json", 4e-3},
                      Golden{"gemma3/config.json", "gemma3/expected.json", 4e-3},
                      Golden{"gpt2/config.json", "gpt2/expected.json", 4e-3}));

// ---- Width invariance.

class CpuInvarianceTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return DataPath(std::string("models/") + GetParam()); }
};

Tokens RandomTokens(std::mt19937& random, size_t count) {
  Tokens tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(random() % 320));
  return tokens;
}

// Logits of every position of `tokens`, one row a pass.
Rows OneByOne(LanguageModel& model, const Tokens& tokens) {
  const SequenceId sequence = model.cache().Create();
  Rows rows;
  for (const int32_t& token : tokens) {
    rows.push_back(Forward(model, {{sequence, {&token, 1}, {}, RowWish::kAll}})[0]);
  }
  EXPECT_THAT(model.cache().Release(sequence), IsOk());
  return rows;
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& expected,
                    const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
      << what << ": largest difference " << LargestDifference(got, expected);
}

// A sequence in pieces of random sizes, beside neighbours that come and go.
TEST_P(CpuInvarianceTest, AnyCuttingBesideAnyNeighboursOnAnyThreads) {
  std::mt19937 random(7);
  for (const std::string& isa : RunnableIsas()) {
    const auto plain = Load(path(), {.isa = isa, .num_threads = 1});
    for (const int32_t threads : {1, 2, 3}) {
      const auto model = Load(path(), {.isa = isa, .num_threads = threads});
      const Tokens tokens = RandomTokens(random, 150);
      const Rows expected = OneByOne(*plain, tokens);
      const SequenceId sequence = model->cache().Create();
      const SequenceId neighbour = model->cache().Create();
      for (size_t done = 0; done < tokens.size();) {
        const size_t most = random() % 4 == 0 ? 90 : 9;
        const size_t count = std::min(1 + random() % most, tokens.size() - done);
        const Tokens others = RandomTokens(random, 1 + random() % 6);
        std::vector<Segment> segments = {
            {sequence, std::span(tokens).subspan(done, count), {}, RowWish::kAll}};
        const bool has_neighbour = model->cache().Length(neighbour) + others.size() < 250;
        if (has_neighbour) {
          segments.insert(segments.begin() + random() % 2, {neighbour, others, {}, RowWish::kAll});
        }
        const size_t skip = has_neighbour && segments[0].sequence == neighbour ? others.size() : 0;
        const Rows rows = Forward(*model, segments);
        for (size_t i = 0; i < count; ++i) {
          ExpectSameBits(rows[skip + i], expected[done + i],
                         isa + ", row " + std::to_string(done + i));
        }
        done += count;
      }
    }
  }
}

// Every path of a random tree gives what the same tokens give as a chain.
TEST_P(CpuInvarianceTest, PathsOfTreesEqualChains) {
  std::mt19937 random(11);
  for (const std::string& isa : RunnableIsas()) {
    const auto model = Load(path(), {.isa = isa, .num_threads = 2});
    for (int round = 0; round < testing::NumStreams(10); ++round) {
      const Tokens prompt = RandomTokens(random, 1 + random() % 140);
      const Tokens tokens = RandomTokens(random, 12);
      Tokens parents;
      for (int32_t i = 0; i < 12; ++i) parents.push_back(static_cast<int32_t>(random() % (i + 1)) - 1);
      const SequenceId sequence = model->cache().Create();
      Forward(*model, {{sequence, prompt, {}, RowWish::kNone}});
      const Rows rows = Forward(*model, {{sequence, tokens, parents, RowWish::kAll}});
      for (int32_t node = 0; node < 12; ++node) {
        Tokens chain;
        for (int32_t at = node; at >= 0; at = parents[at]) chain.insert(chain.begin(), tokens[at]);
        const SequenceId other = model->cache().Create();
        Forward(*model, {{other, prompt, {}, RowWish::kNone}});
        const Rows last = Forward(*model, {{other, chain, {}, RowWish::kLast}});
        ExpectSameBits(rows[node], last[0], isa + ", node " + std::to_string(node));
        EXPECT_THAT(model->cache().Release(other), IsOk());
      }
      EXPECT_THAT(model->cache().Release(sequence), IsOk());
    }
  }
}

// After a path of a tree was kept, the sequence goes on as if it had been a chain.
TEST_P(CpuInvarianceTest, CompactedPathGoesOnAsAChain) {
  const auto model = Load(path(), {.num_threads = 2});
  std::mt19937 random(5);
  const Tokens prompt = RandomTokens(random, 14);
  const Tokens tokens = {7, 8, 9, 10, 11};
  const Tokens parents = {-1, 0, 0, 2, 3};
  const SequenceId sequence = model->cache().Create();
  Forward(*model, {{sequence, prompt, {}, RowWish::kNone}});
  Forward(*model, {{sequence, tokens, parents, RowWish::kNone}});
  const Tokens path = {0, 2, 3};
  ASSERT_THAT(model->cache().Compact(sequence, 14, path), IsOk());
  const Tokens next = {12};
  const Rows rows = Forward(*model, {{sequence, next, {}, RowWish::kAll}});
  Tokens chain = prompt;
  chain.insert(chain.end(), {7, 9, 10, 12});
  ExpectSameBits(rows[0], OneByOne(*model, chain).back(), "after the path");
}

// Rows with other wishes do not change those that want logits, and get none.
TEST_P(CpuInvarianceTest, WishesChooseRows) {
  const auto model = Load(path());
  std::mt19937 random(3);
  const Tokens tokens = RandomTokens(random, 20);
  const Rows expected = OneByOne(*model, tokens);
  const SequenceId a = model->cache().Create();
  const SequenceId b = model->cache().Create();
  const SequenceId c = model->cache().Create();
  const Rows rows = Forward(*model, {{a, tokens, {}, RowWish::kNone},
                                     {b, tokens, {}, RowWish::kLast},
                                     {c, tokens, {}, RowWish::kAll}});
  ASSERT_EQ(rows.size(), 21u);
  ExpectSameBits(rows[0], expected[19], "last");
  for (size_t i = 0; i < 20; ++i) ExpectSameBits(rows[1 + i], expected[i], "all");
}

// The likeliest id of a row, with no row of logits written, is that of the logits.
TEST_P(CpuInvarianceTest, BestAmongIsTheArgmaxOfTheLogits) {
  std::mt19937 random(13);
  const Tokens tokens = RandomTokens(random, 140);
  for (const int32_t threads : {1, 2, 3}) {
    const auto model = Load(path(), {.num_threads = threads});
    for (const int32_t best_of : {1, 17, 300, 320}) {
      const SequenceId a = model->cache().Create();
      const SequenceId b = model->cache().Create();
      const Rows rows = Forward(*model, {{a, tokens, {}, RowWish::kAll}});
      const auto output = model->Forward({{{b, tokens, {}, RowWish::kAll}}, 0, best_of});
      ASSERT_THAT(output, IsOk());
      for (size_t i = 0; i < tokens.size(); ++i) {
        const auto best = std::max_element(rows[i].begin(), rows[i].begin() + best_of);
        EXPECT_THAT(output->BestAmong(static_cast<int64_t>(i), best_of),
                    testing::IsOkAndHolds(static_cast<int32_t>(best - rows[i].begin())));
      }
      EXPECT_THAT(model->cache().Release(a), IsOk());
      EXPECT_THAT(model->cache().Release(b), IsOk());
    }
  }
}

TEST(BestLogitTest, TakesTheLowestOfEqualsAndRefusesWhatIsNotANumber) {
  std::vector<float> logits(100, 1.0f);
  EXPECT_EQ(BestLogit::Of(logits, 7).id, 7);
  logits[40] = logits[90] = 2.0f;
  EXPECT_EQ(BestLogit::Of(logits, 7).id, 47);
  logits[3] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(BestLogit::Of(logits, 0).id, 40);
  EXPECT_EQ(BestLogit::Of(logits, 0).bad_id, -1);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    for (const size_t at : {size_t{3}, size_t{99}}) {
      std::vector<float> row = logits;
      row[at] = bad;
      EXPECT_EQ(BestLogit::Of(row, 5).bad_id, static_cast<int32_t>(at) + 5);
    }
  }
  const std::vector<float> nothing(20, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(BestLogit::Of(nothing, 5).id, -1);
}

INSTANTIATE_TEST_SUITE_P(Types, CpuInvarianceTest,
                         ::testing::Values("llama/model-f32.gguf", "llama/model-f16.gguf",
                                           "llama/model-bf16.gguf", "llama/model-q8_0.gguf",
                                           "llama/model-q4_0.gguf", "llama/model-q4_1.gguf"));

// Windows of 8 positions among layers that see all, biases, norms of other kinds and places.
INSTANTIATE_TEST_SUITE_P(Families, CpuInvarianceTest,
                         ::testing::Values("mistral/model-f32.gguf", "qwen2/model-f32.gguf",
                                           "qwen3/model-f32.gguf", "gemma3/model-f32.gguf",
                                           "gpt2/model-f32.gguf"));

// ---- Refusals.

TEST(CpuTransformerTest, OptionsAreRefusedByName) {
  const auto source = OpenModel(DataPath("models/llama/model-f32.gguf"));
  ASSERT_THAT(source, IsOk());
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(LoadCpuModel(**source, {.isa = "sse9"}),
              StatusIs(invalid, HasSubstr("isa: expected one of")));
  EXPECT_THAT(LoadCpuModel(**source, {.context_length = 257}),
              StatusIs(invalid, HasSubstr("context: expected a number in [1, 256]")));
  EXPECT_THAT(LoadCpuModel(**source, {.num_threads = -1}),
              StatusIs(invalid, HasSubstr("threads: expected")));
}

TEST(CpuTransformerTest, ContextEndsAtItsLastPosition) {
  const auto model = Load(DataPath("models/llama/model-f32.gguf"), {.context_length = 8});
  const SequenceId sequence = model->cache().Create();
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7};
  Forward(*model, {{sequence, tokens, {}, RowWish::kNone}});
  const Tokens chain = {8, 9};
  const Tokens parents = {-1, 0};
  const auto out_of_range = absl::StatusCode::kOutOfRange;
  EXPECT_THAT(model->Forward({{{sequence, chain, {}, RowWish::kAll}}}),
              StatusIs(out_of_range, HasSubstr("context: expected at most 8 positions, got 9")));
  EXPECT_THAT(model->Forward({{{sequence, chain, parents, RowWish::kAll}}}),
              StatusIs(out_of_range, HasSubstr("got 9")));
  EXPECT_EQ(model->cache().Length(sequence), 7);
  const Tokens siblings = {-1, -1};
  EXPECT_EQ(Forward(*model, {{sequence, chain, siblings, RowWish::kAll}}).size(), 2u);
}

}  // namespace
}  // namespace paceline
