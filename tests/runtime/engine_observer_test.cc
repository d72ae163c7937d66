// What an observer sees: tokens in order, decisions, and a trace from which each can be recomputed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/draw.h"
#include "tests/support/engine_fixture.h"
#include "verify/working_row.h"

namespace paceline {
namespace {

using testing::AlwaysPicks;
using testing::Blend;
using testing::DraftCase;
using testing::DraftCases;
using ::testing::ElementsAre;
using testing::EngineSetup;
using testing::Greedy;
using testing::HashedRows;
using testing::Name;
using testing::Plain;
using testing::RunRounds;
using testing::Sampled;
using testing::Script;
using testing::TableModel;
using testing::TestEngine;
using testing::With;

constexpr int32_t kVocab = 6;
constexpr uint64_t kSeed = 12;
const std::vector<int32_t> kPrompt = {1, 2, 3};

EngineSetup Usual() {
  const auto target = HashedRows(kVocab, 4, 2.0);
  return {.target = target,
          .draft = Blend(target, HashedRows(kVocab, 5, 2.0), 0.5),
          .early = Blend(target, HashedRows(kVocab, 6, 2.0), 0.4),
          .vocab_size = kVocab};
}

Distribution<float> Warp(const TableModel::RowFunction& row, std::span<const int32_t> history) {
  const std::vector<float> logits = row(history);
  Candidates<float> candidates;
  EXPECT_THAT(candidates.Assign(std::span<const float>(logits), kVocab), testing::IsOk());
  Distribution<float> warped;
  EXPECT_THAT(warped.AssignSoftmax(candidates), testing::IsOk());
  return warped;
}

std::vector<TokenTrace> TraceOf(TestEngine& engine, const GenerationRequest& request,
                                Choice& choice) {
  std::vector<TokenTrace> trace;
  Observer observer;
  observer.on_trace = [&](uint32_t, std::span<const TokenTrace> round) {
    trace.insert(trace.end(), round.begin(), round.end());
  };
  choice = engine.RunOne(request, observer);
  return trace;
}

std::vector<int32_t> Emitted(const std::vector<TokenTrace>& trace) {
  std::vector<int32_t> tokens;
  for (const TokenTrace& entry : trace) {
    if (entry.decision != Decision::kRejected) tokens.push_back(entry.token);
  }
  return tokens;
}

// The whole history before `position`, given the emitted tokens.
std::vector<int32_t> Before(uint32_t position, const std::vector<int32_t>& emitted) {
  std::vector<int32_t> history = kPrompt;
  history.insert(history.end(), emitted.begin(), emitted.begin() + position - kPrompt.size());
  return history;
}

// Recomputes a sampled draft's decision and the token drawn after a refusal.
class StandardReplay {
 public:
  StandardReplay(const EngineSetup& setup, TableModel::RowFunction draft,
                 std::vector<int32_t> emitted)
      : target_(setup.target), draft_(std::move(draft)), emitted_(std::move(emitted)) {}

  void Check(const TokenTrace& entry) {
    const auto history = Before(entry.position, emitted_);
    const Distribution<float> target = Warp(target_, history);
    const Distribution<float> draft = Warp(draft_, history);
    EXPECT_EQ(entry.target_prob, target.Prob(entry.token));
    switch (entry.decision) {
      case Decision::kAccepted:
      case Decision::kRejected:
        EXPECT_EQ(entry.draft_prob, draft.Prob(entry.token));
        EXPECT_EQ(entry.uniform * entry.draft_prob < entry.target_prob,
                  entry.decision == Decision::kAccepted);
        break;
      case Decision::kRecovered: {
        WorkingRow<float> left(target);
        left.Subtract(1.0, draft);
        EXPECT_EQ(entry.token, target.IdAt(left.Weights([&](auto weights) {
          return InverseCdf(weights, entry.uniform);
        })));
        break;
      }
      case Decision::kBonus:
      case Decision::kPlain:
        EXPECT_EQ(entry.token, target.Draw(entry.uniform));
    }
    if (entry.decision != Decision::kAccepted && entry.decision != Decision::kRejected) {
      EXPECT_EQ(entry.uniform, Uniform({kSeed, 0}, {entry.position, Purpose::kToken}));
      EXPECT_EQ(entry.node, -1);
    }
  }

 private:
  TableModel::RowFunction target_;
  TableModel::RowFunction draft_;
  std::vector<int32_t> emitted_;
};

TEST(EngineObserverTest, TraceOfStandardReplays) {
  const EngineSetup setup = Usual();
  TestEngine engine(setup);
  for (const DraftCase& draft : DraftCases()) {
    if (draft.kind == DraftKind::kNgram) continue;
    SCOPED_TRACE(Name(draft));
    Choice choice;
    const auto trace = TraceOf(engine, With(Sampled(kPrompt, 40, kSeed), draft), choice);
    EXPECT_EQ(Emitted(trace), choice.tokens);
    StandardReplay replay(setup, draft.kind == DraftKind::kModel ? setup.draft : setup.early,
                          choice.tokens);
    for (const TokenTrace& entry : trace) replay.Check(entry);
  }
}

// Rule `match`, and `standard` on a looked-up draft: the target draws with the noise of the place.
TEST(EngineObserverTest, TraceOfTheTargetsOwnDrawsReplays) {
  const EngineSetup setup = Usual();
  TestEngine engine(setup);
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    auto request = With(Sampled(kPrompt, 40, kSeed), draft);
    request.speculation.verify = draft.kind == DraftKind::kNgram ? "standard" : "match";
    Choice choice;
    const auto trace = TraceOf(engine, request, choice);
    EXPECT_EQ(Emitted(trace), choice.tokens);
    for (const TokenTrace& entry : trace) {
      const auto target = Warp(setup.target, Before(entry.position, choice.tokens));
      EXPECT_EQ(entry.uniform, Uniform({kSeed, 0}, {entry.position, Purpose::kToken}));
      EXPECT_EQ(entry.target_prob, target.Prob(entry.token));
      EXPECT_EQ(target.Draw(entry.uniform) == entry.token, entry.decision != Decision::kRejected);
    }
  }
}

TEST(EngineObserverTest, TokensComeInOrderWithTheText) {
  TestEngine engine(Usual());
  for (const DraftCase& draft : DraftCases()) {
    SCOPED_TRACE(Name(draft));
    auto request = With(Sampled(kPrompt, 30, kSeed), draft);
    request.num_choices = 3;
    std::vector<std::vector<int32_t>> tokens(3);
    std::vector<std::string> texts(3);
    Observer observer;
    observer.on_token = [&](const EmittedToken& token) {
      EXPECT_EQ(token.position, kPrompt.size() + tokens[token.choice].size());
      tokens[token.choice].push_back(token.token);
      texts[token.choice] += token.text;
    };
    const GenerationResult result = engine.Run(request, observer);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(tokens[i], result.choices[i].tokens);
      EXPECT_EQ(texts[i], result.choices[i].text);
    }
  }
}

TEST(EngineObserverTest, ChoicesAreNumberedOverAllRequests) {
  TestEngine engine(Usual());
  auto pair = Plain(Greedy(kPrompt, 2));
  pair.num_choices = 2;
  std::vector<uint32_t> choices;
  Observer observer;
  observer.on_token = [&](const EmittedToken& token) { choices.push_back(token.choice); };
  engine.RunAll({pair, Plain(Greedy({4}, 1))}, observer);
  EXPECT_THAT(choices, ElementsAre(0, 1, 2, 0, 1));
}

TEST(EngineObserverTest, DecisionsAreThoseOfTheRound) {
  TestEngine vocabulary({.target = HashedRows(8, 1, 1)});
  TableModel model(8, 64, Script(8, 1, {1, 2, 3, 4, 5, 6, 7}));
  std::vector<Decision> decisions;
  Observer observer;
  observer.on_token = [&](const EmittedToken& token) { decisions.push_back(token.decision); };
  auto request = Greedy({0}, 7);
  request.speculation.num_draft_tokens = 2;
  int32_t round = 0;
  const std::vector<std::vector<int32_t>> drafts = {{1, 2}, {4, 0}, {}, {}};
  RunRounds(model, vocabulary.vocabulary(), request,
            std::make_unique<testing::FunctionDrafter>([&](const DraftRequest&) {
              return Proposal<float>::Deterministic(TokenTree::Chain(drafts[round++]));
            }),
            observer);
  EXPECT_THAT(decisions, ElementsAre(Decision::kAccepted, Decision::kAccepted, Decision::kBonus,
                                     Decision::kAccepted, Decision::kRecovered, Decision::kPlain,
                                     Decision::kPlain));
}

TEST(EngineObserverTest, PromptProgressReachesItsTotal) {
  TestEngine engine({.target = HashedRows(8, 1, 1), .context_length = 600});
  std::vector<int64_t> done;
  Observer observer;
  observer.on_prompt = [&](int64_t now, int64_t total) {
    EXPECT_EQ(total, 299);
    done.push_back(now);
  };
  engine.RunOne(Plain(Greedy(std::vector<int32_t>(300, 1), 2)), observer);
  EXPECT_THAT(done, ElementsAre(256, 299));
}

// BR-36: drafts of sizes 1 (dropped by a minimum of 2) and 4 (3 accepted).
TEST(EngineTelemetryTest, DroppedDraftsAreNotCounted) {
  TestEngine vocabulary({.target = HashedRows(8, 1, 1)});
  TableModel model(8, 64, Script(8, 1, {1, 2, 3, 4, 5, 6, 7}));
  auto request = Greedy({0}, 6);
  request.speculation.draft_min = 2;
  int32_t round = 0;
  const std::vector<std::vector<int32_t>> drafts = {{1}, {2, 3, 4, 0}, {}};
  const Choice choice =
      RunRounds(model, vocabulary.vocabulary(), request,
                std::make_unique<testing::FunctionDrafter>([&](const DraftRequest&) {
                  return Proposal<float>::Deterministic(TokenTree::Chain(drafts[round++]));
                }));
  EXPECT_EQ(choice.telemetry.AcceptanceRate(), 0.75);
  EXPECT_EQ(choice.telemetry.num_draft_tokens, 4);
  EXPECT_EQ(choice.telemetry.num_drafts, 1);
  EXPECT_THAT(choice.tokens, ElementsAre(1, 2, 3, 4, 5, 6));
}

// BR-36 (no draft at all).
TEST(EngineTelemetryTest, RatesOfPlainDecodingAreNull) {
  TestEngine engine(Usual());
  const Choice choice = engine.RunOne(Plain(Greedy(kPrompt, 5)));
  EXPECT_EQ(choice.telemetry.AcceptanceRate(), std::nullopt);
  EXPECT_EQ(choice.telemetry.MeanAcceptanceLength(), std::nullopt);
  EXPECT_EQ(choice.telemetry.TokensPerRound(), 1.0);
  EXPECT_EQ(choice.telemetry.num_rounds, 5);
}

}  // namespace
}  // namespace paceline
