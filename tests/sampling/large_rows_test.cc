// Every stage on rows of every size and kind: what holds whatever the row is.
#include "tests/support/large_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sampling/pipeline.h"
#include "tests/sampling/pipeline_fixture.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::History;
using testing::IsOk;
using testing::kMasked;
using testing::kRowKinds;
using testing::kRowSizes;
using testing::LargeRow;
using testing::RowKind;

struct Setting {
  const char* stage;
  SamplingOptions options;
  bool by_rank = false;  // Keeps a prefix of the rank order and nothing else.
};

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  const auto add = [&](const char* stage, bool by_rank, auto set) {
    Setting setting{stage, {}, by_rank};
    set(setting.options);
    settings.push_back(setting);
  };
  add("none", true, [](auto&) {});
  add("logit_bias", false, [](auto& o) { o.logit_bias = {{0, 2.0}}; });
  add("allowed_ids", false, [](auto& o) { o.allowed_ids = {0}; });
  add("repetition_penalty", false, [](auto& o) { o.repetition_penalty = 1.3; });
  add("frequency and presence", false, [](auto& o) {
    o.frequency_penalty = 0.5;
    o.presence_penalty = 0.3;
  });
  add("dry", false, [](auto& o) { o.dry_multiplier = 0.8; });
  add("temperature", false, [](auto& o) { o.temperature = 0.6; });
  add("dynatemp", false, [](auto& o) { o.dynatemp_range = 0.4; });
  add("top_n_sigma", true, [](auto& o) { o.top_n_sigma = 1.5; });
  add("top_k", true, [](auto& o) { o.top_k = 40; });
  add("top_p", true, [](auto& o) { o.top_p = 0.9; });
  add("top_p with ties", true, [](auto& o) {
    o.top_p = 0.9;
    o.ties = Ties::kValue;
  });
  add("min_p", true, [](auto& o) { o.min_p = 0.05; });
  add("typical_p", false, [](auto& o) { o.typical_p = 0.8; });
  add("epsilon_cutoff", true, [](auto& o) { o.epsilon_cutoff = 1e-4; });
  add("eta_cutoff", true, [](auto& o) { o.eta_cutoff = 1e-3; });
  add("top_h", true, [](auto& o) { o.top_h = 0.6; });
  add("xtc", false, [](auto& o) {
    o.xtc_probability = 1;
    o.xtc_threshold = 0.02;
  });
  add("mirostat2", true, [](auto& o) { o.mirostat_tau = 5; });
  add("all filters", true, [](auto& o) {
    o.top_n_sigma = 3;
    o.top_k = 100;
    o.top_p = 0.95;
    o.min_p = 0.01;
  });
  return settings;
}

template <typename Real>
std::vector<double> Warp(const std::vector<float>& logits, const SamplingOptions& options) {
  auto pipeline = Pipeline<Real>::Create(options, static_cast<int32_t>(logits.size()));
  EXPECT_THAT(pipeline, IsOk());
  const History history({0}, {0, 0}, {0});
  RowContext context = history.Context();
  context.mirostat_mu = 2 * options.mirostat_tau;
  const auto row = pipeline->Apply(std::span<const float>(logits), context);
  EXPECT_THAT(row, IsOk());
  const std::vector<Real> dense = row->Dense();
  return {dense.begin(), dense.end()};
}

// Sums to 1, gives nothing to masked tokens, and leaves one token at least.
void ExpectDistribution(const std::vector<float>& logits, const std::vector<double>& probs) {
  double sum = 0;
  for (size_t id = 0; id < probs.size(); ++id) {
    ASSERT_GE(probs[id], 0) << "token " << id;
    if (logits[id] == kMasked) {
      ASSERT_EQ(probs[id], 0) << "token " << id;
    }
    sum += probs[id];
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

// What is kept is a prefix of the rank order up to ties, with the odds of the plain softmax.
void ExpectPrefix(const std::vector<float>& logits, const std::vector<double>& probs,
                  const std::vector<double>& plain) {
  float least_kept = std::numeric_limits<float>::infinity();
  float most_dropped = kMasked;
  double kept_mass = 0;
  for (size_t id = 0; id < probs.size(); ++id) {
    const bool kept = probs[id] > 0;
    if (kept) least_kept = std::min(least_kept, logits[id]);
    // A token whose probability underflows is neither.
    if (!kept && plain[id] > 1e-30) most_dropped = std::max(most_dropped, logits[id]);
    kept_mass += kept ? plain[id] : 0;
  }
  EXPECT_GE(least_kept, most_dropped);
  for (size_t id = 0; id < probs.size(); ++id) {
    if (probs[id] > 0) {
      ASSERT_NEAR(probs[id], plain[id] / kept_mass, 1e-6) << "token " << id;
    }
  }
}

TEST(LargeStagesTest, EveryStageGivesADistributionOnEveryRow) {
  for (const int32_t size : kRowSizes) {
    for (const RowKind kind : kRowKinds) {
      const std::vector<float> logits = LargeRow(kind, size, 42);
      const std::vector<double> plain = Warp<double>(logits, {});
      for (const Setting& setting : Settings()) {
        // The only token that the setting allows may be masked by the row itself.
        if (setting.options.allowed_ids.size() == 1 && logits[0] == kMasked) continue;
        SCOPED_TRACE(std::string(setting.stage) + ", V " + std::to_string(size) + ", kind " +
                     std::to_string(static_cast<int>(kind)));
        const std::vector<double> wide = Warp<double>(logits, setting.options);
        const std::vector<double> narrow = Warp<float>(logits, setting.options);
        ExpectDistribution(logits, wide);
        ExpectDistribution(logits, narrow);
        if (setting.by_rank) {
          ExpectPrefix(logits, wide, plain);
          ExpectPrefix(logits, narrow, plain);
        }
        // Float32 against float64: where both keep the same tokens, each within 1e-6.
        const auto kept = [](const std::vector<double>& probs) {
          return std::count_if(probs.begin(), probs.end(),
                               [](double prob) { return prob > 1e-30; });
        };
        if (kept(wide) != kept(narrow)) {
          // A token at the very edge of a filter; never more than a few of those of equal logit.
          EXPECT_LE(std::abs(kept(wide) - kept(narrow)), 1);
          continue;
        }
        for (int32_t id = 0; id < size; ++id) ASSERT_NEAR(wide[id], narrow[id], 1e-6) << id;
      }
    }
  }
}

TEST(LargeStagesTest, TemperatureZeroIsTheFirstOfTheLargestWhateverIsFiltered) {
  for (const int32_t size : kRowSizes) {
    for (const RowKind kind : kRowKinds) {
      const std::vector<float> logits = LargeRow(kind, size, 42);
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      SamplingOptions options;
      options.temperature = 0;
      options.top_p = 0.5;
      options.typical_p = 0.2;
      const std::vector<double> probs = Warp<float>(logits, options);
      for (int32_t id = 0; id < size; ++id) ASSERT_EQ(probs[id], id == best ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace paceline
