// What tests of drafters share: a sequence's view of a round, and comparison of proposals.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "sampling/pipeline.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {

inline Pipeline<float> MakePipeline(const SamplingOptions& options, int32_t vocab_size) {
  return *Pipeline<float>::Create(options, vocab_size);
}

inline SamplingOptions Temperature(double temperature) {
  SamplingOptions options;
  options.temperature = temperature;
  return options;
}

// Committed tokens of one sequence and the requests made of them.
class Committed {
 public:
  Committed(std::vector<int32_t> prompt, uint64_t seed)
      : tokens_(std::move(prompt)),
        prompt_length_(static_cast<int32_t>(tokens_.size())),
        key_{seed, 0} {
    counts_.AddPrompt(tokens_);
  }

  void Add(std::span<const int32_t> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    counts_.AddOutput(tokens);
  }

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

  DraftRequest Request(int32_t max_tokens, SequenceId target_sequence = -1) const {
    return {.committed = tokens_,
            .prompt_length = prompt_length_,
            .counts = &counts_,
            .key = key_,
            .target_sequence = target_sequence,
            .max_tokens = max_tokens};
  }

 private:
  std::vector<int32_t> tokens_;
  int32_t prompt_length_;
  StreamKey key_;
  TokenCounts counts_;
};

// The same tree, drawn from the same rows.
inline void ExpectSameProposal(const absl::StatusOr<Proposal<float>>& got,
                               const absl::StatusOr<Proposal<float>>& want) {
  ASSERT_THAT(got, IsOk());
  ASSERT_THAT(want, IsOk());
  EXPECT_EQ(got->tree.tokens, want->tree.tokens);
  EXPECT_EQ(got->tree.parents, want->tree.parents);
  ASSERT_EQ(got->draft_rows.size(), want->draft_rows.size());
  for (size_t i = 0; i < got->draft_rows.size(); ++i) {
    EXPECT_EQ(got->draft_rows[i].deterministic(), want->draft_rows[i].deterministic());
    if (got->draft_rows[i].deterministic()) continue;
    EXPECT_EQ(got->draft_rows[i].row().Dense(), want->draft_rows[i].row().Dense());
  }
}

}  // namespace paceline::testing
