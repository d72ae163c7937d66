// The recorded cases (verify.json) of rules for several candidates, on one position and on trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/drawn_trees.h"
#include "tests/support/enumeration.h"
#include "tests/support/fixed_numbers.h"
#include "tests/support/law_cases.h"
#include "tests/support/markov_rows.h"
#include "tests/support/monte_carlo.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "verify/k_seq.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Apply;
using testing::Children;
using testing::Emitted;
using testing::FixedNumbers;
using testing::IsOk;
using testing::Law;
using testing::Numbers;
using testing::RowOf;
using testing::Rows;
using testing::Tokens;
using testing::TreeShape;

Children ChildrenOf(const json& params) {
  const std::string method = params["method"];
  if (method == "sampled-first") return Children::kCertainFirst;
  if (params.contains("drafters")) return Children::kMixed;
  const bool replacement = method == "k-seq" || params.value("replacement", false);
  return replacement ? Children::kWithReplacement : Children::kWithoutReplacement;
}

TreeShape ShapeOf(const json& params) {
  TreeShape shape;
  shape.width = params.contains("width") ? params["width"].get<int32_t>() : params["k"].get<int32_t>();
  shape.depth = params.value("depth", 1);
  shape.children = ChildrenOf(params);
  shape.expand_if_at_least = params.value("expand_if_q_at_least", 0.0);
  return shape;
}

// Rules are looked up by the name a case has for them, aliases included.
std::string RuleOf(const json& params) {
  const std::string order = params.value("candidate_order", "");
  return order == "spechub" ? order : params["method"].get<std::string>();
}

struct Drawn {
  Law emitted;
  std::vector<std::pair<std::set<int32_t>, double>> candidates;  // Of the first position.
};

Drawn LawOf(const json& one, const RowOf<double>& target) {
  const json& inputs = one["inputs"];
  const bool mixed = inputs.contains("q1");
  const auto draft = testing::Memoized(Rows<double>(inputs, "draft", mixed ? "q1" : "q"));
  const auto other = mixed ? Rows<double>(inputs, "draft", "q2") : draft;
  Drawn drawn;
  testing::Enumerate(
      [&](Randomness& randomness) {
        return testing::TreeDrawer<double>(draft, other, ShapeOf(one["params"]), 0, randomness)
            .Draw();
      },
      [&](const Proposal<double>& proposal, double drafted) {
        std::set<int32_t> candidates;
        for (int32_t child : proposal.tree.Children(-1)) {
          candidates.insert(proposal.tree.tokens[child]);
        }
        drawn.candidates.push_back({candidates, drafted});
        // Nothing that a draft reads is read again here: the proofs enumerate both together.
        testing::Enumerate(
            [&](Randomness& randomness) {
              const auto outcome = Apply<double>(RuleOf(one["params"]), proposal, target, randomness);
              EXPECT_THAT(outcome, IsOk());
              return Emitted(proposal.tree, *outcome);
            },
            [&](const Tokens& emitted, double probability) {
              drawn.emitted[emitted] += drafted * probability;
            });
      });
  return drawn;
}

// Emitted tokens of a single position: what follows an accepted candidate is not part of a case.
Law FirstPosition(const Law& law) {
  Law first;
  for (const auto& [tokens, probability] : law) {
    Tokens kept = tokens;
    if (kept.size() == 2) kept[1] = 0;
    first[kept] += probability;
  }
  return first;
}

// The most that any lossless rule accepts: min over token sets H of p(H) + 1 - P(candidates in H).
double OptimalAcceptance(const Distribution<double>& target, const Drawn& drawn) {
  double optimal = 1;
  for (int32_t set = 0; set < 1 << target.vocab_size(); ++set) {
    double bound = 1;
    for (int32_t id = 0; id < target.vocab_size(); ++id) {
      if (set >> id & 1) bound += target.Prob(id);
    }
    for (const auto& [candidates, probability] : drawn.candidates) {
      const bool inside = std::all_of(candidates.begin(), candidates.end(),
                                      [&](int32_t id) { return set >> id & 1; });
      if (inside) bound -= probability;
    }
    optimal = std::min(optimal, bound);
  }
  return optimal;
}

// Fields about the draft and the rule's own numbers.
bool ExpectDetail(const json& one, const Drawn& drawn, const RowOf<double>& target,
                  const std::string& field, const json& expected) {
  const double tolerance = one["tolerance"].get<double>();
  const json& inputs = one["inputs"];
  if (field == "optimal") {
    EXPECT_NEAR(OptimalAcceptance(target({}), drawn), expected.get<double>(), tolerance);
    return true;
  }
  const auto draft = Numbers<double>(inputs[inputs.contains("q1") ? "q1" : "q"]);
  const std::vector<int32_t> ranked = testing::RankedIds(draft);
  const auto num_candidates = one["params"]["k"].get<size_t>();
  if (field == "certain") {
    EXPECT_EQ(Tokens(ranked.begin(), ranked.begin() + num_candidates - 1),
              expected.get<Tokens>());
  } else if (field == "hub") {
    EXPECT_EQ(ranked[0], expected.get<int32_t>());
  } else if (field == "sampled_from" || field == "residual_mass") {
    std::vector<double> rest = draft;
    for (size_t i = 0; i + 1 < num_candidates; ++i) rest[ranked[i]] = 0;
    const auto row = testing::Renormalised<double>(rest);
    for (size_t id = 0; id < rest.size(); ++id) {
      // What the target keeps for the last draw, outside the certain candidates.
      const bool certain = rest[id] == 0;
      const double left = certain ? 0 : std::max(target({}).Prob(id) - row.Prob(id), 0.0);
      EXPECT_NEAR(field == "sampled_from" ? row.Prob(id) : left, expected[id].get<double>(),
                  tolerance);
    }
  } else if (field == "rho" || field == "beta") {
    const auto row = testing::MakeRow<double>(draft);
    const KSeqDivisor divisor = FindKSeqDivisor(target({}), row, num_candidates);
    EXPECT_NEAR(field == "rho" ? divisor.rho : divisor.beta, expected.get<double>(), tolerance);
  } else {
    return false;
  }
  return true;
}

void RunLaw(const json& one) {
  const auto target = testing::Memoized(Rows<double>(one["inputs"], "target", "p"));
  Drawn drawn = LawOf(one, target);
  if (!one["params"].contains("width")) drawn.emitted = FirstPosition(drawn.emitted);
  const auto other = [&](const std::string& field, const json& expected) {
    return ExpectDetail(one, drawn, target, field, expected);
  };
  if (one["params"].contains("width")) return testing::ExpectLaw(one, drawn.emitted, target, other);
  // Of one position, losslessness is that of its token.
  Law first;
  for (const auto& [tokens, probability] : drawn.emitted) first[{tokens[0]}] += probability;
  EXPECT_LT(testing::DistanceFrom(first, target), 1e-12);
  json rest = one;
  rest["expected"].erase("lossless");
  testing::ExpectLaw(rest, drawn.emitted, target, other);
}

// The candidates of one position in draw order, repeats included, as a tree of depth 1. Fills in the
// number of the coin of each `sub`: by node the first draw of its token, by attempt the attempt.
template <typename Real>
Proposal<Real> Candidates(const json& one, std::vector<size_t>& coin_of_sub) {
  const bool attempts = one["params"]["method"] == "k-seq";
  const auto row = testing::MakeRow<Real>(Numbers<double>(one["inputs"]["q"]));
  Proposal<Real> proposal;
  std::vector<int32_t> draws;
  coin_of_sub = {0};
  for (size_t j = 0; j < one["inputs"]["candidates"].size(); ++j) {
    const auto token = one["inputs"]["candidates"][j].get<int32_t>();
    const auto found =
        std::find(proposal.tree.tokens.begin(), proposal.tree.tokens.end(), token);
    const bool again = found != proposal.tree.tokens.end();
    draws.push_back(again ? static_cast<int32_t>(found - proposal.tree.tokens.begin())
                          : proposal.tree.Add(-1, token));
    if (!again || attempts) coin_of_sub.push_back(j);
  }
  const bool distinct = ChildrenOf(one["params"]) == Children::kWithoutReplacement;
  proposal.draft_rows.push_back(distinct ? ProposalDist<Real>::Sampled(row)
                                         : ProposalDist<Real>::Independent({row}, draws));
  return proposal;
}

template <typename Real>
void RunCandidateTrace(const json& one) {
  std::vector<size_t> coin_of_sub;
  const Proposal<Real> proposal = Candidates<Real>(one, coin_of_sub);
  FixedNumbers numbers(one["inputs"], coin_of_sub);
  const auto outcome = Apply<Real>(one["params"]["method"], proposal,
                                   Rows<Real>(one["inputs"], "target", "p"), numbers);
  ASSERT_THAT(outcome, IsOk());
  const json& expected = one["expected"];
  EXPECT_EQ(Emitted(proposal.tree, *outcome)[0], expected["emitted"][0].get<int32_t>());
  EXPECT_EQ(outcome->path.size(), expected["num_accepted"].get<size_t>());
  // The draw that was accepted is the last one judged.
  const auto judged = std::count_if(outcome->trace.begin(), outcome->trace.end(),
                                    [](const TokenTrace& entry) { return entry.node >= 0; });
  if (!expected["accepted_candidate"].is_null()) {
    EXPECT_EQ(judged - 1, expected["accepted_candidate"].get<int64_t>());
  }
  if (expected.contains("rho")) {
    const auto divisor =
        FindKSeqDivisor(testing::MakeRow<Real>(Numbers<double>(one["inputs"]["p"])),
                        testing::MakeRow<Real>(Numbers<double>(one["inputs"]["q"])),
                        one["inputs"]["candidates"].size());
    const double tolerance = sizeof(Real) == sizeof(float) ? 1e-6 : one["tolerance"].get<double>();
    EXPECT_NEAR(divisor.rho, expected["rho"].get<double>(), tolerance);
    EXPECT_NEAR(divisor.beta, expected["beta"].get<double>(), tolerance);
  }
}

// The row and number of picked children of a node of a sampled-first tree of `width`.
template <typename Real>
ProposalDist<Real> CertainFirst(const Distribution<Real>& row, int32_t width) {
  std::vector<double> rest = testing::Doubles(row);
  const std::vector<int32_t> ranked = testing::RankedIds(rest);
  const size_t num_certain = std::min<size_t>(ranked.size(), width - 1);
  for (size_t i = 0; i < num_certain; ++i) rest[ranked[i]] = 0;
  const bool drawn = ranked.size() > num_certain;
  return ProposalDist<Real>::CertainFirst(
      static_cast<int32_t>(num_certain),
      drawn ? testing::Renormalised<Real>(rest) : Distribution<Real>());
}

template <typename Real>
Proposal<Real> Tree(const json& one) {
  const json& inputs = one["inputs"];
  const auto draft = Rows<Real>(inputs, "draft", "q");
  Proposal<Real> proposal;
  proposal.tree = {inputs["tokens"].get<Tokens>(), inputs["parents"].get<Tokens>()};
  for (int32_t node = -1; node < proposal.tree.size(); ++node) {
    if (proposal.tree.Children(node).empty()) continue;
    Distribution<Real> row = draft(proposal.tree.PathTokens(node));
    proposal.draft_rows.push_back(
        one["params"]["method"] == "sampled-first"
            ? CertainFirst<Real>(row, one["params"]["width"].get<int32_t>())
            : ProposalDist<Real>::Sampled(std::move(row)));
  }
  return proposal;
}

template <typename Real>
void RunTreeTrace(const json& one) {
  const Proposal<Real> proposal = Tree<Real>(one);
  EXPECT_THAT(proposal.Validate(static_cast<int32_t>(one["inputs"]["draft_root"].size())), IsOk());
  FixedNumbers numbers(one["inputs"]);
  const auto outcome = Apply<Real>(one["params"]["method"], proposal,
                                   Rows<Real>(one["inputs"], "target", "p"), numbers);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(Emitted(proposal.tree, *outcome), one["expected"]["emitted"].get<Tokens>());
  EXPECT_EQ(outcome->path, one["expected"]["path"].get<Tokens>());
}

void RunTrace(const json& one) {
  if (one["inputs"].contains("candidates")) {
    RunCandidateTrace<float>(one);
    return RunCandidateTrace<double>(one);
  }
  RunTreeTrace<float>(one);
  RunTreeTrace<double>(one);
}

TEST(CandidateCasesTest, EveryCaseHolds) {
  const char* const kGroups[] = {"rrs/", "k-seq/", "sampled-first/", "tree/rrs/",
                                 "tree/traversal/", "tree/sampled-first/"};
  const char* const kTraces[] = {"trace/rrs/", "trace/k-seq/", "trace/traversal/",
                                 "trace/sampled-first/"};
  const json cases = testing::ReadJson("verify.json");
  int laws = 0;
  int traces = 0;
  int not_offered = 0;
  int too_long = 0;
  for (const auto& one : cases["cases"]) {
    const std::string name = one["name"].get<std::string>();
    const auto named = [&](const char* prefix) { return name.starts_with(prefix); };
    SCOPED_TRACE(name);
    if (name.ends_with("/top-first")) {
      ++not_offered;  // Judging the certain candidates first accepts less.
    } else if (testing::kSanitized && name.find("w2-d3") != std::string::npos) {
      ++too_long;  // 280,000 trees each.
    } else if (std::any_of(std::begin(kGroups), std::end(kGroups), named)) {
      RunLaw(one);
      ++laws;
    } else if (std::any_of(std::begin(kTraces), std::end(kTraces), named)) {
      RunTrace(one);
      ++traces;
    }
  }
  std::printf("[cases] verify.json: %d laws and %d traces of several candidates\n", laws, traces);
  EXPECT_EQ(laws + too_long, 43);
  EXPECT_EQ(too_long, testing::kSanitized ? 4 : 0);
  EXPECT_EQ(traces, 67);
  EXPECT_EQ(not_offered, 6);
}

}  // namespace
}  // namespace paceline
