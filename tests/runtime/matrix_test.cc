// The table of what is exact and what is refused, and that admission follows it.
#include "runtime/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/engine_fixture.h"
#include "verify/given_rows.h"
#include "verify/rules.h"

namespace paceline {
namespace {

using testing::HashedRows;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Sampled;
using testing::StatusIs;
using testing::TestEngine;

// Every setting that a request can ask for, asked for.
struct Ask {
  std::string_view feature;
  void (*set)(GenerationRequest& request);
};
const Ask kAsks[] = {
    {"temperature 0", [](auto& r) { r.sampling.temperature = 0; }},
    {"temperature, dynatemp", [](auto& r) { r.sampling.top_k = 3; }},
    {"logit bias", [](auto& r) { r.sampling.logit_bias = {{1, 0.5}}; }},
    {"repetition", [](auto& r) { r.sampling.repetition_penalty = 1.2; }},
    {"XTC", [](auto& r) { r.sampling.xtc_probability = 0.5; }},
    {"mirostat v2", [](auto& r) { r.sampling.mirostat_tau = 3; }},
    {"guidance", [](auto& r) { r.sampling.guidance_scale = 1.5; }},
    {"log-probabilities", [](auto& r) { r.num_logprobs = 2; }},
    {"several choices", [](auto& r) { r.num_choices = 2; }},
    {"streaming", [](auto& r) { r.stop_ids = {3}; }},
    {"seed", [](auto& r) { r.seed = 5; }},
    {"invariant", [](auto& r) { r.speculation.invariant = true; }},
    {"require_exact", [](auto& r) { r.speculation.require_exact = true; }},
    {"deterministic chain", [](auto& r) { r.speculation.draft = DraftKind::kNgram; }},
};

const Feature& FeatureOf(std::string_view name) {
  for (const Feature& feature : Features()) {
    if (feature.name.starts_with(name)) return feature;
  }
  ADD_FAILURE() << "no feature " << name;
  return Features().front();
}

const MatrixNote& NoteOf(int number) {
  for (const MatrixNote& note : MatrixNotes()) {
    if (note.number == number) return note;
  }
  ADD_FAILURE() << "no note " << number;
  return MatrixNotes().front();
}

// Each rule of this build with each setting and each draft is admitted or refused as its cell says.
TEST(MatrixTest, AdmissionFollowsTheTable) {
  TestEngine engine({.target = HashedRows(8, 1, 3.0), .draft = HashedRows(8, 2, 3.0)});
  int refused = 0;
  for (const Rule& rule : Rules()) {
    for (const DraftKind draft : {DraftKind::kNgram, DraftKind::kModel, DraftKind::kEarlyExit}) {
      for (const Ask& ask : kAsks) {
        GenerationRequest request = Sampled({1, 2}, 4, 1);
        request.speculation.draft = draft;
        request.speculation.verify = std::string(rule.name);
        ask.set(request);
        if (rule.name == "greedy" && request.sampling.temperature != 0) continue;
        SCOPED_TRACE(request.speculation.verify + ", " + std::string(ask.feature) + ", draft " +
                     std::string(DraftKindName(request.speculation.draft)));
        const auto group = static_cast<int>(GroupOf(request));
        const Feature& feature = FeatureOf(ask.feature);
        EXPECT_TRUE(feature.asked(request));
        EXPECT_NE(feature.not_built, "all");
        const Cell& chain = FeatureOf("deterministic chain").cells[group];
        const bool deterministic = request.speculation.draft == DraftKind::kNgram;
        const Cell& cell = feature.cells[group].verdict != Verdict::kRefused && deterministic
                               ? chain
                               : feature.cells[group];
        if (cell.verdict != Verdict::kRefused) {
          EXPECT_THAT(engine.engine().Check(request), IsOk());
          continue;
        }
        ++refused;
        const MatrixNote& note = NoteOf(cell.note);
        EXPECT_THAT(engine.engine().Check(request),
                    StatusIs(note.code, HasSubstr(std::string(note.message))));
        EXPECT_THAT(engine.engine().Generate(request), StatusIs(note.code, HasSubstr("")));
        EXPECT_EQ(engine.target().num_passes(), 0);
      }
    }
  }
  EXPECT_GT(refused, 0);
}

// A cell that refuses names a note, a note is used, and lossy rules alone are flagged.
TEST(MatrixTest, NotesAndCellsBelongTogether) {
  std::set<int> used;
  for (const Feature& feature : Features()) {
    for (const Cell& cell : feature.cells) {
      EXPECT_EQ(cell.verdict == Verdict::kRefused, cell.note != 0) << feature.name;
      if (cell.note != 0) used.insert(NoteOf(cell.note).number);
    }
    EXPECT_EQ(feature.not_built == "all", feature.not_built == "all" && feature.asked == nullptr)
        << feature.name << ": a request can ask for what is not built";
  }
  EXPECT_EQ(used.size(), MatrixNotes().size());
}

// Rules of one column agree with what the table of rules says of them.
TEST(MatrixTest, ColumnsAgreeWithTheRules) {
  for (const Rule& rule : Rules()) {
    GenerationRequest request = Sampled({1, 2}, 4, 1);
    request.speculation.draft = DraftKind::kModel;
    request.speculation.verify = std::string(rule.name);
    const RuleGroup group = GroupOf(request);
    EXPECT_EQ(rule.lossless, group != RuleGroup::kLossy) << rule.name;
    EXPECT_EQ(rule.invariant, group == RuleGroup::kTargetDraws || group == RuleGroup::kCoupled)
        << rule.name;
  }
}

// What no request can ask for yet, trees, rules refuse or take themselves, as their column says.
TEST(MatrixTest, RulesTakeTheTreesOfTheirColumn) {
  using Draft = ProposalDist<float>;
  const auto row = *Distribution<float>::FromProbs(std::vector<float>{0.4f, 0.3f, 0.2f, 0.1f});
  // Two children of the root; the first has one of its own.
  const TokenTree tree = {{0, 1, 2}, {-1, -1, 0}};
  const auto drawn = [&](std::string_view rule) -> std::vector<Draft> {
    if (rule == "k-seq") {
      return {Draft::Independent({row}, {0, 1}), Draft::Independent({row}, {2})};
    }
    if (rule == "sampled-first") return {Draft::CertainFirst(1, row), Draft::CertainFirst(0, row)};
    return {Draft::Sampled(row), Draft::Sampled(row)};
  };
  int refused = 0;
  for (const Rule& rule : Rules()) {
    for (const bool sampled : {false, true}) {
      Proposal<float> proposal = Proposal<float>::Deterministic(tree);
      if (sampled) proposal.draft_rows = drawn(rule.name);
      ASSERT_THAT(proposal.Validate(4), IsOk());
      GivenRows<float> rows({row, row, row, row});
      StreamRandomness randomness({1, 0});
      const auto outcome = rule.verify({proposal, rows, randomness, 0});
      const Feature& feature = FeatureOf(sampled ? "sampled tree" : "deterministic tree");
      const Cell& cell = feature.cells[static_cast<int>(rule.group)];
      SCOPED_TRACE(std::string(rule.name) + ", " + std::string(feature.name));
      // `block` and `ensemble` are the rules for chains of columns that take trees.
      const bool takes = cell.verdict != Verdict::kRefused && rule.trees;
      refused += takes ? 0 : 1;
      EXPECT_EQ(outcome.ok(), takes) << outcome.status();
      if (!takes) {
        EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr(std::string(rule.name) + "` expects")));
      }
    }
  }
  EXPECT_GT(refused, 5);
}

TEST(MatrixTest, ThePageIsWhatTheCommandPrints) {
  std::ifstream file(PACELINE_SOURCE_DIR "/docs/matrix.md");
  std::ostringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), MatrixMarkdown())
      << "paceline matrix --markdown >docs/matrix.md brings it up to date";
}

}  // namespace
}  // namespace paceline
