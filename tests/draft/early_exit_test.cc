#include "draft/early_exit.h"

#include <gtest/gtest.h>

#include <random>

#include "target/target.h"
#include "tests/support/draft_fixture.h"
#include "tests/support/table_model.h"

namespace paceline {
namespace {

using testing::Blend;
using testing::Committed;
using ::testing::ElementsAre;
using testing::ExpectSameProposal;
using testing::HashedRows;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakePipeline;
using testing::StatusIs;
using testing::TableModel;
using testing::Temperature;

constexpr int32_t kVocab = 9;
const std::vector<int32_t> kPrompt = {1, 2, 3, 4, 5, 6};

TableModel::RowFunction FullRow() { return HashedRows(kVocab, 11, 3.0); }
TableModel::RowFunction EarlyRow() { return Blend(FullRow(), HashedRows(kVocab, 12, 3.0), 0.6); }

class EarlyExitTest : public ::testing::Test {
 protected:
  EarlyExitTest() { model_.set_early_row(EarlyRow()); }

  EarlyExitDrafter Make(double temperature, std::vector<int32_t> end_ids = {}) {
    return EarlyExitDrafter(&model_, 2, MakePipeline(Temperature(temperature), kVocab),
                            std::move(end_ids));
  }

  TableModel model_{kVocab, 64, FullRow()};
  Target target_{&model_};
};

TEST_F(EarlyExitTest, DraftsWhatTheFirstLayersSay) {
  EarlyExitDrafter drafter = Make(0);
  const Committed committed(kPrompt, 1);
  const SequenceId sequence = *target_.Start(kPrompt);
  const auto proposal = drafter.Propose(committed.Request(5, sequence));
  ASSERT_THAT(proposal, IsOk());
  EXPECT_TRUE(proposal->deterministic());
  std::vector<int32_t> history = kPrompt;
  for (int32_t token : proposal->tree.tokens) {
    const auto row = EarlyRow()(history);
    EXPECT_EQ(token, std::max_element(row.begin(), row.end()) - row.begin());
    history.push_back(token);
  }
  EXPECT_EQ(history.size(), 11u);
}

TEST_F(EarlyExitTest, DrawsAndHandsOverTheRow) {
  EarlyExitDrafter drafter = Make(1);
  const Committed committed(kPrompt, 5);
  const auto proposal = drafter.Propose(committed.Request(4, *target_.Start(kPrompt)));
  ASSERT_THAT(proposal, IsOk());
  ASSERT_EQ(proposal->draft_rows.size(), 4u);
  for (int32_t i = 0; i < 4; ++i) {
    ASSERT_FALSE(proposal->draft_rows[i].deterministic());
    const double u = Uniform({5, 0}, {static_cast<uint32_t>(committed.size() + i), Purpose::kDraft,
                                      static_cast<uint8_t>(i), 0});
    EXPECT_EQ(proposal->tree.tokens[i], proposal->draft_rows[i].row().Draw(u));
  }
}

// The drafted entries lack the upper layers; TableModel refuses to read such an entry in a full
// pass.
TEST_F(EarlyExitTest, LeavesTheTargetsCacheAsItWas) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    EarlyExitDrafter drafter = Make(seed % 2);
    Committed committed(kPrompt, seed);
    const SequenceId sequence = *target_.Start(kPrompt);
    for (int32_t round = 0; round < 5; ++round) {
      const auto slots = model_.cache().Slots(sequence);
      const auto count = static_cast<int32_t>(1 + random() % 7);
      const auto proposal = drafter.Propose(committed.Request(count, sequence));
      ASSERT_THAT(proposal, IsOk());
      EXPECT_EQ(model_.cache().Slots(sequence), slots);
      ExpectSameProposal(drafter.Propose(committed.Request(count, sequence)), proposal);

      const ScoreRequest request{sequence, committed.tokens().back(), &proposal->tree};
      const auto scores = target_.Score({&request, 1});
      ASSERT_THAT(scores, IsOk());
      std::vector<int32_t> path;
      const auto accepted = static_cast<int32_t>(random() % (count + 1));
      for (int32_t i = 0; i < accepted; ++i) path.push_back(i);
      for (int32_t node = -1; node < count; ++node) {
        std::vector<int32_t> history = committed.tokens();
        const auto drafted = proposal->tree.PathTokens(node);
        history.insert(history.end(), drafted.begin(), drafted.end());
        const auto row = scores->Row(0, node);
        EXPECT_EQ(std::vector<float>(row.begin(), row.end()), FullRow()(history));
      }
      ASSERT_THAT(target_.Commit(sequence, proposal->tree, path), IsOk());
      std::vector<int32_t> emitted = proposal->tree.PathTokens(accepted - 1);
      emitted.push_back(static_cast<int32_t>(random() % kVocab));
      committed.Add(emitted);
      ASSERT_THAT(drafter.Commit(committed.tokens()), IsOk());
      EXPECT_EQ(model_.cache().Length(sequence), committed.size() - 1);
    }
    ASSERT_THAT(model_.cache().Release(sequence), IsOk());
  }
  EXPECT_EQ(model_.cache().pages_in_use(), 0);
}

TEST_F(EarlyExitTest, DoesNotDisturbAForkOfTheSequence) {
  EarlyExitDrafter drafter = Make(1);
  const Committed committed(kPrompt, 5);
  const SequenceId first = *target_.Start(kPrompt);
  const SequenceId second = *model_.cache().Fork(first);
  ASSERT_THAT(drafter.Propose(committed.Request(7, first)), IsOk());
  const TokenTree nothing;
  const ScoreRequest request{second, kPrompt.back(), &nothing};
  const auto scores = target_.Score({&request, 1});
  ASSERT_THAT(scores, IsOk());
  const auto row = scores->Row(0, -1);
  EXPECT_EQ(std::vector<float>(row.begin(), row.end()), FullRow()(kPrompt));
}

TEST_F(EarlyExitTest, KeepsAnEndTokenAndStopsBehindIt) {
  model_.set_early_row([](std::span<const int32_t> history) {
    std::vector<float> row(kVocab, 0);
    row[(history.back() + 1) % kVocab] = 100;
    return row;
  });
  EarlyExitDrafter drafter = Make(0, {8});
  const Committed committed(kPrompt, 0);
  EXPECT_THAT(drafter.Propose(committed.Request(7, *target_.Start(kPrompt)))->tree.tokens,
              ElementsAre(7, 8));
}

TEST_F(EarlyExitTest, FailingPassLeavesTheTargetsCache) {
  EarlyExitDrafter drafter = Make(1);
  const Committed committed(kPrompt, 5);
  const SequenceId sequence = *target_.Start(kPrompt);
  const auto wanted = drafter.Propose(committed.Request(4, sequence));
  for (int32_t good_passes = 0; good_passes < 4; ++good_passes) {
    SCOPED_TRACE(good_passes);
    int32_t passes_left = good_passes;
    model_.set_early_row([&](std::span<const int32_t> history) {
      if (--passes_left == 0) model_.FailNext(absl::InternalError("device lost"));
      return EarlyRow()(history);
    });
    if (good_passes == 0) model_.FailNext(absl::InternalError("device lost"));
    EXPECT_THAT(drafter.Propose(committed.Request(4, sequence)),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("device lost")));
    EXPECT_EQ(model_.cache().Length(sequence), 5);
    passes_left = -1;
    ExpectSameProposal(drafter.Propose(committed.Request(4, sequence)), wanted);
  }
}

}  // namespace
}  // namespace paceline
