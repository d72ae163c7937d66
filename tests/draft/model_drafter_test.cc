#include "draft/model_drafter.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/draft_fixture.h"
#include "tests/support/table_model.h"

namespace paceline {
namespace {

using testing::Committed;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::ExpectSameProposal;
using testing::HashedRows;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakePipeline;
using ::testing::Pointwise;
using testing::StatusIs;
using testing::TableModel;
using testing::Temperature;

constexpr int32_t kVocab = 9;
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 6};

SamplingOptions TopK(int32_t top_k) {
  SamplingOptions options;
  options.top_k = top_k;
  return options;
}

SamplingOptions AllPenalties() {
  SamplingOptions options;
  options.repetition_penalty = 1.3;
  options.frequency_penalty = 0.4;
  options.presence_penalty = 0.2;
  options.top_p = 0.9;
  return options;
}

class ModelDrafterTest : public ::testing::Test {
 protected:
  ModelDrafter Make(const SamplingOptions& options, std::vector<int32_t> end_ids = {}) {
    return ModelDrafter(&model_, MakePipeline(options, kVocab), std::move(end_ids));
  }

  TableModel model_{kVocab, 64, HashedRows(kVocab, 11, 3.0)};
};

// BR-01: q is the row that the token was drawn from, after the draft's own filters.
TEST_F(ModelDrafterTest, HandsOverTheFilteredRow) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.3f)};
  TableModel model(3, 64, [&](std::span<const int32_t>) { return logits; });
  ModelDrafter drafter(&model, MakePipeline(TopK(2), 3), {});
  const Committed committed({0, 1}, 3);
  const auto proposal = drafter.Propose(committed.Request(4));
  ASSERT_THAT(proposal, IsOk());
  ASSERT_EQ(proposal->draft_rows.size(), 4u);
  for (const auto& dist : proposal->draft_rows) {
    EXPECT_FALSE(dist.deterministic());
    EXPECT_THAT(dist.row().Dense(),
                Pointwise(::testing::FloatNear(1e-6f), {4.0f / 7, 3.0f / 7, 0.0f}));
  }
}

TEST_F(ModelDrafterTest, DrawsFromTheRowHandedOverWithTheNoiseOfItsPlace) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ModelDrafter drafter = Make(AllPenalties());
    const Committed committed(kPrompt, seed);
    const auto proposal = drafter.Propose(committed.Request(7));
    ASSERT_THAT(proposal, IsOk());
    ASSERT_EQ(proposal->tree.size(), 7);
    for (int32_t i = 0; i < 7; ++i) {
      const double u = Uniform({seed, 0}, {static_cast<uint32_t>(committed.size() + i),
                                           Purpose::kDraft, static_cast<uint8_t>(i), 0});
      EXPECT_EQ(proposal->tree.tokens[i], proposal->draft_rows[i].row().Draw(u)) << "draft " << i;
    }
  }
}

TEST_F(ModelDrafterTest, PenalisesEachRowWithTheDraftsBeforeIt) {
  // Token 3 always leads by less than one frequency penalty.
  TableModel model(kVocab, 64, [](std::span<const int32_t>) {
    std::vector<float> row(kVocab, 0);
    row[3] = 5.0;
    row[4] = 4.5;
    return row;
  });
  SamplingOptions options = Temperature(0);
  options.frequency_penalty = 1.0;
  ModelDrafter drafter(&model, MakePipeline(options, kVocab), {});
  const Committed committed({1}, 0);
  EXPECT_THAT(drafter.Propose(committed.Request(4))->tree.tokens, ElementsAre(3, 4, 3, 4));
}

// BR-02.
TEST_F(ModelDrafterTest, ArgmaxDraftIsDeterministic) {
  ModelDrafter drafter = Make(Temperature(0));
  const Committed committed(kPrompt, 1);
  const auto proposal = drafter.Propose(committed.Request(5));
  ASSERT_THAT(proposal, IsOk());
  EXPECT_EQ(proposal->tree.size(), 5);
  EXPECT_TRUE(proposal->deterministic());
  std::vector<int32_t> history = kPrompt;
  for (int32_t token : proposal->tree.tokens) {
    const auto row = HashedRows(kVocab, 11, 3.0)(history);
    EXPECT_EQ(token, std::max_element(row.begin(), row.end()) - row.begin());
    history.push_back(token);
  }
}

TEST_F(ModelDrafterTest, SameRequestGivesTheSameProposal) {
  ModelDrafter drafter = Make(AllPenalties());
  const Committed committed(kPrompt, 21);
  const auto first = drafter.Propose(committed.Request(6));
  ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
  ExpectSameProposal(drafter.Propose(committed.Request(6)), first);
}

TEST_F(ModelDrafterTest, AnotherSeedGivesOtherDraws) {
  ModelDrafter first = Make(Temperature(1));
  ModelDrafter second = Make(Temperature(1));
  const Committed one(kPrompt, 1);
  const Committed two(kPrompt, 2);
  EXPECT_NE(first.Propose(one.Request(20))->tree.tokens,
            second.Propose(two.Request(20))->tree.tokens);
}

TEST_F(ModelDrafterTest, KeepsAnEndTokenAndStopsBehindIt) {
  TableModel model(kVocab, 64, [](std::span<const int32_t> history) {
    std::vector<float> row(kVocab, 0);
    row[(history.back() + 1) % kVocab] = 100;
    return row;
  });
  for (double temperature : {0.0, 1.0}) {
    ModelDrafter drafter(&model, MakePipeline(Temperature(temperature), kVocab), {8, 5});
    const Committed committed({2}, 0);
    EXPECT_THAT(drafter.Propose(committed.Request(7))->tree.tokens, ElementsAre(3, 4, 5));
  }
}

// BR-26: after 3, 1 and 0 accepted of 3, the cache covers every committed token but the newest one
// once the next round starts proposing.
TEST_F(ModelDrafterTest, CacheCoversCommittedTokensButTheLast) {
  for (int32_t num_accepted : {3, 2, 1, 0}) {
    SCOPED_TRACE(num_accepted);
    ModelDrafter drafter = Make(Temperature(1));
    Committed committed(kPrompt, 4);
    const auto proposal = drafter.Propose(committed.Request(3));
    ASSERT_THAT(proposal, IsOk());
    std::vector<int32_t> emitted(proposal->tree.tokens.begin(),
                                 proposal->tree.tokens.begin() + num_accepted);
    const int32_t refused = num_accepted < 3 ? proposal->tree.tokens[num_accepted] : 0;
    emitted.push_back((refused + 1) % kVocab);
    committed.Add(emitted);
    ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
    // The third draft was never fed: with all accepted the next round catches up by one.
    EXPECT_EQ(drafter.cached(), num_accepted == 3 ? 8 : 6 + num_accepted);
    ASSERT_THAT(drafter.Propose(committed.Request(1)), IsOk());
    EXPECT_EQ(drafter.cached(), committed.size());
  }
}

// BR-26, BR-28: the state after a commit is that of a drafter freshly fed the committed tokens.
TEST_F(ModelDrafterTest, StateEqualsThatOfAFreshDrafterAfterEveryCommit) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const SamplingOptions options = seed % 3 == 0 ? Temperature(0) : AllPenalties();
    ModelDrafter drafter = Make(options);
    Committed committed(kPrompt, seed);
    for (int32_t round = 0; round < 6; ++round) {
      const auto count = static_cast<int32_t>(1 + random() % 7);
      const auto proposal = drafter.Propose(committed.Request(count));
      ModelDrafter fresh = Make(options);
      ExpectSameProposal(fresh.Propose(committed.Request(count)), proposal);
      const auto accepted = random() % (proposal->tree.size() + 1);
      std::vector<int32_t> emitted(proposal->tree.tokens.begin(),
                                   proposal->tree.tokens.begin() + accepted);
      emitted.push_back(static_cast<int32_t>(random() % kVocab));
      committed.Add(emitted);
      ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
    }
  }
}

TEST_F(ModelDrafterTest, CatchesUpWithRoundsItDidNotDraft) {
  ModelDrafter drafter = Make(Temperature(1));
  Committed committed(kPrompt, 8);
  ASSERT_THAT(drafter.Propose(committed.Request(2)), IsOk());
  for (int32_t token : {7, 0, 3, 3}) {
    committed.Add(std::vector<int32_t>{token});
    ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
  }
  ModelDrafter fresh = Make(Temperature(1));
  ExpectSameProposal(drafter.Propose(committed.Request(5)), fresh.Propose(committed.Request(5)));
}

TEST_F(ModelDrafterTest, FailingPassLeavesTheState) {
  for (int32_t good_passes = 0; good_passes < 5; ++good_passes) {
    SCOPED_TRACE(good_passes);
    const auto row = HashedRows(kVocab, 11, 3.0);
    int32_t passes_left = -1;  // Before the one that fails; negative: none fails.
    TableModel* self = nullptr;
    TableModel model(kVocab, 64, [&](std::span<const int32_t> history) {
      if (--passes_left == 0) self->FailNext(absl::InternalError("device lost"));
      return row(history);
    });
    self = &model;
    ModelDrafter drafter(&model, MakePipeline(Temperature(1), kVocab), {});
    Committed committed(kPrompt, 8);
    ASSERT_THAT(drafter.Propose(committed.Request(3)), IsOk());
    committed.Add(std::vector<int32_t>{7, 8});
    ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
    const int32_t cached = drafter.cached();

    passes_left = good_passes;
    if (good_passes == 0) model.FailNext(absl::InternalError("device lost"));
    EXPECT_THAT(drafter.Propose(committed.Request(6)),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("device lost")));
    EXPECT_LE(drafter.cached(), committed.size() - 1);
    EXPECT_GE(drafter.cached(), cached);
    ModelDrafter fresh = Make(Temperature(1));
    ExpectSameProposal(drafter.Propose(committed.Request(6)), fresh.Propose(committed.Request(6)));
  }
}

// BR-25: at the end of its own context the drafter pauses.
TEST_F(ModelDrafterTest, ProposesNothingBeyondItsContext) {
  TableModel model(kVocab, 8, HashedRows(kVocab, 11, 3.0));
  ModelDrafter drafter(&model, MakePipeline(Temperature(0), kVocab), {});
  Committed committed(kPrompt, 0);
  EXPECT_EQ(drafter.Propose(committed.Request(4))->tree.size(), 2);
  for (int32_t round = 0; round < 5; ++round) {
    committed.Add(std::vector<int32_t>{1, 2});
    ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
    EXPECT_EQ(drafter.Propose(committed.Request(4))->tree.size(), 0);
  }
  EXPECT_LT(model.largest_position(), 8);
}

TEST_F(ModelDrafterTest, NothingIsCachedAfterItsEnd) {
  {
    ModelDrafter drafter = Make(Temperature(1));
    const Committed committed(kPrompt, 8);
    ASSERT_THAT(drafter.Propose(committed.Request(3)), IsOk());
    EXPECT_GT(model_.cache().pages_in_use(), 0);
  }
  EXPECT_EQ(model_.cache().pages_in_use(), 0);
}

TEST_F(ModelDrafterTest, DraftersOfOneModelDoNotDisturbEachOther) {
  ModelDrafter first = Make(Temperature(1));
  ModelDrafter second = Make(Temperature(1));
  Committed one(kPrompt, 1);
  Committed two({8, 8}, 2);
  const auto alone = Make(Temperature(1)).Propose(one.Request(5));
  ASSERT_THAT(first.Propose(one.Request(2)), IsOk());
  ASSERT_THAT(second.Propose(two.Request(4)), IsOk());
  ASSERT_THAT(first.Commit(one.tokens()), IsOk());
  ExpectSameProposal(first.Propose(one.Request(5)), alone);
}

TEST_F(ModelDrafterTest, PaddedRowsNeverPropose) {
  // BR-31 (b): the head is wider than the vocabulary and its padding is the largest.
  TableModel model(6, 64,
                   [](std::span<const int32_t>) { return std::vector<float>{0, 1, 0, 2, 50, 40}; });
  ModelDrafter drafter(&model, MakePipeline(Temperature(0), 4), {});
  const Committed committed({0}, 0);
  EXPECT_THAT(drafter.Propose(committed.Request(3))->tree.tokens, ElementsAreArray({3, 3, 3}));
}

}  // namespace
}  // namespace paceline
