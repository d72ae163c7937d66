// The law of the output: streams against exact enumeration, and measured against expected
// acceptance. Every test has a fixed seed; the chance of a false alarm was 1e-4 a comparison when
// the seed was chosen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "draft/model_drafter.h"
#include "sampling/mirostat2.h"
#include "tests/support/chi_square.h"
#include "tests/support/draft_fixture.h"
#include "tests/support/drawn_trees.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/monte_carlo.h"

namespace paceline {
namespace {

using testing::Blend;
using testing::DraftCase;
using testing::EngineSetup;
using testing::FunctionDrafter;
using testing::HashedRows;
using testing::LogitsOf;
using testing::MakePipeline;
using testing::Name;
using testing::Plain;
using testing::RunRounds;
using testing::SameRow;
using testing::Sampled;
using testing::TableModel;
using testing::TestEngine;
using testing::With;

constexpr int32_t kVocab = 4;
constexpr int32_t kOutput = 3;
constexpr int32_t kStreams = testing::NumStreams(20000);
constexpr int32_t kTreeStreams = testing::NumStreams(4000);
constexpr int32_t kRounds = testing::NumStreams(50000);  // Of single tokens.
constexpr double kFalseAlarm = 1e-4;
const std::vector<int32_t> kPrompt = {1, 3};

using Law = std::map<std::vector<int32_t>, double>;

// The law of the next token where the stage xtc may flip its coin either way.
std::vector<double> MeanOverTheCoin(const std::vector<float>& logits, Pipeline<double>& pipeline,
                                    const RowContext& context) {
  SamplingOptions options = pipeline.options();
  const double share = options.xtc_probability;
  std::vector<double> mean(kVocab, 0.0);
  for (const double coin : {0.0, 1.0}) {
    if (share == 0 && coin == 1) continue;
    options.xtc_probability = coin;
    auto fixed = *Pipeline<double>::Create(options, kVocab);
    const auto row = *fixed.Apply(std::span<const float>(logits), context);
    for (int32_t id = 0; id < kVocab; ++id) {
      mean[id] += (coin == 1 ? share : 1 - share) * row.Prob(id);
    }
  }
  return mean;
}

// Exact law of the first outputs: products of the pipeline's rows, in double.
void Enumerate(const TableModel::RowFunction& row, Pipeline<double>& pipeline,
               std::vector<int32_t> output, double prob, double mu, Law& law) {
  if (output.size() == kOutput) {
    law[output] += prob;
    return;
  }
  std::vector<int32_t> committed = kPrompt;
  committed.insert(committed.end(), output.begin(), output.end());
  TokenCounts counts;
  counts.AddPrompt(kPrompt);
  counts.AddOutput(output);
  RowContext context;
  context.history = {committed, static_cast<int32_t>(kPrompt.size()), {}, &counts};
  context.mirostat_mu = mu;
  const std::vector<float> logits = row(committed);
  const std::vector<double> probs = MeanOverTheCoin(logits, pipeline, context);
  for (int32_t token = 0; token < kVocab; ++token) {
    if (probs[token] == 0) continue;
    output.push_back(token);
    Enumerate(row, pipeline, output, prob * probs[token],
              NextMu(pipeline.options(), mu, probs[token]), law);
    output.pop_back();
  }
}

EngineSetup LawSetup() {
  const auto target = HashedRows(kVocab, 21, 1.5);
  const auto other = HashedRows(kVocab, 22, 2.5);
  return {.target = target,
          .draft = Blend(target, other, 0.4),
          .early = Blend(target, other, 0.7),
          .vocab_size = kVocab};
}

void ExpectLaw(const SamplingOptions& sampling, const std::string& rule, const DraftCase& draft) {
  SCOPED_TRACE(rule + ", " + Name(draft));
  TestEngine engine(LawSetup());
  // Room for a whole draft at each of the outputs that are looked at.
  auto request = With(Sampled(kPrompt, kOutput + draft.num_draft_tokens, 77), draft);
  request.sampling = sampling;
  request.speculation.verify = rule;
  request.num_choices = kStreams;
  Law law;
  auto pipeline = *Pipeline<double>::Create(sampling, kVocab);
  Enumerate(LawSetup().target, pipeline, {}, 1, FirstMu(sampling), law);
  std::map<std::vector<int32_t>, int64_t> counts;
  Telemetry telemetry;
  for (Choice& choice : engine.Run(request).choices) {
    choice.tokens.resize(kOutput);
    ++counts[choice.tokens];
    telemetry.Merge(choice.telemetry);
  }
  const testing::ChiSquare fit = testing::ChiSquareTest(counts, law);
  EXPECT_GE(fit.p_value, kFalseAlarm) << fit.statistic << " at " << fit.degrees << " degrees";
  if (draft.kind == DraftKind::kNone) return;
  EXPECT_GT(*telemetry.AcceptanceRate(), 0.1);
  EXPECT_LT(*telemetry.AcceptanceRate(), 0.95);
}

SamplingOptions Filtered() {
  SamplingOptions sampling;
  sampling.temperature = 0.8;
  sampling.top_p = 0.9;
  sampling.frequency_penalty = 0.5;
  sampling.repetition_penalty = 1.2;
  return sampling;
}

TEST(EngineLawTest, PlainDecoding) { ExpectLaw({}, "standard", {DraftKind::kNone, 1}); }

TEST(EngineLawTest, StandardWithADraftModel) {
  for (int32_t num_draft : {1, 2, 3, 4}) ExpectLaw({}, "standard", {DraftKind::kModel, num_draft});
}

TEST(EngineLawTest, StandardWithEarlyExit) {
  for (int32_t num_draft : {1, 2, 3, 4}) {
    ExpectLaw({}, "standard", {DraftKind::kEarlyExit, num_draft});
  }
}

TEST(EngineLawTest, StandardWithFiltersAndPenalties) {
  for (int32_t num_draft : {1, 3}) {
    ExpectLaw(Filtered(), "standard", {DraftKind::kModel, num_draft});
    ExpectLaw(Filtered(), "standard", {DraftKind::kEarlyExit, num_draft});
  }
}

// Coins behind a refusal were looked at: a round that used them again would shift the law.
TEST(EngineLawTest, BlockOverSeveralRounds) {
  for (int32_t num_draft : {2, 3, 4}) ExpectLaw({}, "block", {DraftKind::kModel, num_draft});
  ExpectLaw(Filtered(), "block", {DraftKind::kEarlyExit, 3});
}

TEST(EngineLawTest, MatchWithADraftModel) {
  ExpectLaw({}, "match", {DraftKind::kModel, 3});
  ExpectLaw(Filtered(), "match", {DraftKind::kEarlyExit, 2});
}

TEST(EngineLawTest, CoupledOverSeveralRounds) {
  for (int32_t num_draft : {1, 3}) ExpectLaw({}, "coupled", {DraftKind::kModel, num_draft});
  ExpectLaw(Filtered(), "coupled", {DraftKind::kEarlyExit, 2});
  ExpectLaw({}, "coupled", {DraftKind::kNone, 1});
}

TEST(EngineLawTest, GumbelDrawsUnderOtherRules) {
  SamplingOptions sampling = Filtered();
  sampling.draw = DrawMethod::kGumbel;
  ExpectLaw(sampling, "standard", {DraftKind::kModel, 3});
  ExpectLaw(sampling, "block", {DraftKind::kEarlyExit, 2});
  ExpectLaw(sampling, "match", {DraftKind::kNone, 1});
}

// What a rule expects of the rows it judged is what it then accepts.
TEST(EngineLawTest, ExpectedAcceptanceIsWhatIsMeasured) {
  for (const std::string rule : {"standard", "match", "coupled", "rrs", "k-seq", "sampled-first",
                                 "typical", "relaxed", "ensemble"}) {
    for (const DraftCase& draft : {DraftCase{DraftKind::kModel, 4}, {DraftKind::kEarlyExit, 3}}) {
      SCOPED_TRACE(rule + ", " + Name(draft));
      TestEngine engine(LawSetup());
      auto request = With(Sampled(kPrompt, 40, 5), draft);
      request.speculation.verify = rule;
      request.speculation.rule.relaxed_delta = 0.1;
      request.num_choices = 200;
      Telemetry telemetry;
      for (const Choice& choice : engine.Run(request).choices) telemetry.Merge(choice.telemetry);
      const double expected = *telemetry.expected_acceptance.Value();
      const auto trials = static_cast<double>(telemetry.expected_acceptance.count);
      EXPECT_NEAR(*telemetry.JudgedAcceptance(), expected, testing::ShareTolerance(expected, trials));
      const bool lossy = !(*FindRule(rule))->lossless;
      EXPECT_EQ(telemetry.deviation.Value().has_value(), lossy);
      // `match` and the tolerant rules look at what was drawn alone.
      const bool compares = rule != "match" && rule != "typical" && rule != "relaxed";
      ASSERT_EQ(telemetry.total_variation.Value().has_value(), compares);
      if (rule != "standard") continue;
      EXPECT_NEAR(*telemetry.expected_acceptance.Value(), 1 - *telemetry.total_variation.Value(),
                  1e-6);
    }
  }
}

Choice RunRule(const std::string& rule, const DraftCase& draft, uint64_t seed) {
  TestEngine engine(LawSetup());
  auto request = With(Sampled(kPrompt, 24, seed), draft);
  request.speculation.verify = rule;
  return engine.RunOne(request);
}

// On a chain the rules for several candidates are those for one, token for token.
TEST(EngineLawTest, CandidateRulesOnAChainAreStandardAndBlock) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const DraftCase draft{DraftKind::kModel, 3};
    const Choice standard = RunRule("standard", draft, seed);
    for (const char* rule : {"rrs", "k-seq", "sampled-first"}) {
      EXPECT_EQ(RunRule(rule, draft, seed).tokens, standard.tokens) << rule;
    }
    EXPECT_EQ(RunRule("traversal", draft, seed).tokens, RunRule("block", draft, seed).tokens);
  }
}

// C.4: one seed, one text, whatever is drafted; and coupling accepts more than chance does.
TEST(EngineLawTest, CoupledTokensDoNotDependOnTheDraft) {
  int64_t coupled_accepted = 0;
  int64_t match_accepted = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Choice plain = RunRule("coupled", {DraftKind::kNone, 1}, seed);
    for (const DraftCase& draft : testing::DraftCases()) {
      const Choice drafted = RunRule("coupled", draft, seed);
      EXPECT_EQ(drafted.tokens, plain.tokens) << Name(draft);
      if (draft.kind != DraftKind::kModel) continue;
      coupled_accepted += drafted.telemetry.num_accepted_tokens;
      match_accepted += RunRule("match", draft, seed).telemetry.num_accepted_tokens;
    }
  }
  EXPECT_GT(coupled_accepted, match_accepted * 5 / 4);
}

// ---- Drawn trees through rounds, caches and commits.

// The law of the first outputs where each round drafts a tree of `shape` from the draft's rows.
void ExpectTreeLaw(const std::string& rule, const testing::TreeShape& shape,
                   const SamplingOptions& sampling = {}) {
  SCOPED_TRACE(rule);
  const EngineSetup setup = LawSetup();
  TestEngine vocabulary(setup);
  TableModel model(kVocab, 64, setup.target);
  auto request = Sampled(kPrompt, kOutput + shape.depth, 31);
  request.speculation.verify = rule;
  request.speculation.num_draft_tokens = shape.depth;
  request.sampling = sampling;
  Law law;
  auto pipeline = *Pipeline<double>::Create(sampling, kVocab);
  Enumerate(setup.target, pipeline, {}, 1, FirstMu(sampling), law);
  std::map<std::vector<int32_t>, int64_t> counts;
  int64_t accepted = 0;
  const auto row_after = [](const TableModel::RowFunction& rows, std::vector<int32_t> committed) {
    return [&rows, committed](const testing::Tokens& drafted) {
      std::vector<int32_t> all = committed;
      all.insert(all.end(), drafted.begin(), drafted.end());
      auto softmax = MakePipeline({}, kVocab);
      const std::vector<float> logits = rows(all);
      return *softmax.Apply(std::span<const float>(logits), {});
    };
  };
  for (uint32_t stream = 0; stream < kTreeStreams; ++stream) {
    const auto propose = [&](const DraftRequest& draft) -> absl::StatusOr<Proposal<float>> {
      const std::vector<int32_t> committed(draft.committed.begin(), draft.committed.end());
      StreamRandomness randomness(draft.key);
      testing::TreeShape cut = shape;
      cut.depth = std::min(shape.depth, draft.max_tokens);
      return testing::TreeDrawer<float>(row_after(setup.draft, committed),
                                        row_after(setup.early, committed), cut,
                                        static_cast<uint32_t>(committed.size()), randomness)
          .Draw();
    };
    Choice choice = RunRounds(model, vocabulary.vocabulary(), request,
                              std::make_unique<FunctionDrafter>(propose), {}, stream);
    choice.tokens.resize(kOutput);
    ++counts[choice.tokens];
    accepted += choice.telemetry.num_accepted_tokens;
  }
  const testing::ChiSquare fit = testing::ChiSquareTest(counts, law);
  EXPECT_GE(fit.p_value, kFalseAlarm) << fit.statistic << " at " << fit.degrees << " degrees";
  EXPECT_GT(accepted, kTreeStreams / 2);
}

TEST(EngineLawTest, DrawnTreesOverSeveralRounds) {
  using testing::Children;
  ExpectTreeLaw("rrs", {2, 2, Children::kWithoutReplacement});
  ExpectTreeLaw("rrs", {2, 2, Children::kWithReplacement});
  ExpectTreeLaw("rrs", {2, 2, Children::kMixed});
  ExpectTreeLaw("k-seq", {2, 2, Children::kWithReplacement});
  ExpectTreeLaw("sampled-first", {2, 2, Children::kCertainFirst});
  ExpectTreeLaw("traversal", {2, 2, Children::kWithoutReplacement});
  ExpectTreeLaw("walk", {2, 2, Children::kWithoutReplacement});
}

SamplingOptions SometimesLeavesOut() {
  SamplingOptions sampling;
  sampling.xtc_probability = 0.4;
  sampling.xtc_threshold = 0.2;
  return sampling;
}

SamplingOptions AimsAtASurprise() {
  SamplingOptions sampling;
  sampling.mirostat_tau = 0.9;
  sampling.mirostat_eta = 0.5;
  return sampling;
}

// A coin for each position, which rules that look behind a refusal must not read twice.
TEST(EngineLawTest, XtcOverSeveralRounds) {
  ExpectLaw(SometimesLeavesOut(), "standard", {DraftKind::kNone, 1});
  for (const char* rule : {"standard", "block", "match", "coupled"}) {
    ExpectLaw(SometimesLeavesOut(), rule, {DraftKind::kModel, 3});
  }
  ExpectTreeLaw("traversal", {2, 2, testing::Children::kWithoutReplacement}, SometimesLeavesOut());
  ExpectTreeLaw("rrs", {2, 2, testing::Children::kWithReplacement}, SometimesLeavesOut());
}

// mu follows the drafted path, and then the committed tokens alone.
TEST(EngineLawTest, MirostatOverSeveralRounds) {
  ExpectLaw(AimsAtASurprise(), "standard", {DraftKind::kNone, 1});
  for (const char* rule : {"standard", "block", "match"}) {
    ExpectLaw(AimsAtASurprise(), rule, {DraftKind::kModel, 3});
  }
  ExpectTreeLaw("traversal", {2, 2, testing::Children::kWithoutReplacement}, AimsAtASurprise());
}

// First tokens and acceptance of `streams` rounds of one drafted token.
struct FirstTokens {
  std::vector<double> shares;
  double acceptance = 0;
};

FirstTokens RunOneTokenRounds(const std::vector<double>& target,
                              const std::function<std::unique_ptr<Drafter>()>& make_drafter) {
  TestEngine vocabulary({.target = SameRow({0}), .vocab_size = 3});
  TableModel model(static_cast<int32_t>(target.size()), 64, SameRow(LogitsOf(target)));
  Vocabulary view = vocabulary.vocabulary();
  view.size = static_cast<int32_t>(target.size());
  auto request = Sampled({0}, 2, 31);
  request.speculation.num_draft_tokens = 1;
  FirstTokens result{std::vector<double>(target.size(), 0)};
  Telemetry telemetry;
  for (uint32_t stream = 0; stream < kRounds; ++stream) {
    const Choice choice = RunRounds(model, view, request, make_drafter(), {}, stream);
    result.shares[choice.tokens.front()] += 1.0 / kRounds;
    telemetry.Merge(choice.telemetry);
  }
  result.acceptance = *telemetry.AcceptanceRate();
  return result;
}

// BR-01: the draft filters its own row; q is what it drew from.
TEST(EngineLawTest, DraftWithItsOwnFilterLeavesTheTargetsLaw) {
  TableModel draft(3, 64, SameRow(LogitsOf({0.4, 0.3, 0.3})));
  SamplingOptions options;
  options.top_k = 2;
  const FirstTokens first = RunOneTokenRounds({0.5, 0.3, 0.2}, [&] {
    return std::make_unique<ModelDrafter>(&draft, MakePipeline(options, 3), std::vector<int32_t>{});
  });
  EXPECT_NEAR(first.shares[0], 0.5, testing::ShareTolerance(0.5, kRounds));
  EXPECT_NEAR(first.shares[1], 0.3, testing::ShareTolerance(0.3, kRounds));
  EXPECT_NEAR(first.shares[2], 0.2, testing::ShareTolerance(0.2, kRounds));
  EXPECT_NEAR(first.acceptance, 0.8, testing::ShareTolerance(0.8, kRounds));
}

// BR-02: a token picked by argmax is a one-hot proposal.
TEST(EngineLawTest, ArgmaxDraftUnderASampledTarget) {
  TableModel draft(2, 64, SameRow(LogitsOf({0.7, 0.3})));
  SamplingOptions options;
  options.temperature = 0;
  const FirstTokens first = RunOneTokenRounds({0.6, 0.4}, [&] {
    return std::make_unique<ModelDrafter>(&draft, MakePipeline(options, 2), std::vector<int32_t>{});
  });
  EXPECT_NEAR(first.shares[0], 0.6, testing::ShareTolerance(0.6, kRounds));
  EXPECT_NEAR(first.acceptance, 0.6, testing::ShareTolerance(0.6, kRounds));
}

// A draft that is refused for its length would favour the draws that are long.
TEST(EngineLawTest, DraftMinNeverDropsWhatWasDrawn) {
  // Token 0 ends the draft early half of the time.
  TableModel draft(2, 64, SameRow(LogitsOf({0.5, 0.5})));
  TestEngine vocabulary({.target = SameRow({0, 0}), .vocab_size = 2});
  TableModel model(2, 64, SameRow(LogitsOf({0.2, 0.8})));
  auto request = Sampled({1}, 4, 31);
  request.speculation.num_draft_tokens = 3;
  request.speculation.draft_min = 2;
  double zeros = 0;
  int64_t short_drafts = 0;
  for (uint32_t stream = 0; stream < kRounds; ++stream) {
    auto drafter =
        std::make_unique<ModelDrafter>(&draft, MakePipeline({}, 2), std::vector<int32_t>{0});
    const Choice choice =
        RunRounds(model, vocabulary.vocabulary(), request, std::move(drafter), {}, stream);
    zeros += choice.tokens.front() == 0;
    short_drafts += choice.telemetry.drafted_at.size() == 1;
  }
  EXPECT_NEAR(zeros / kRounds, 0.2, testing::ShareTolerance(0.2, kRounds));
  EXPECT_GT(short_drafts, kRounds / 4);
}

}  // namespace
}  // namespace paceline
