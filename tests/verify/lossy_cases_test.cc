// The recorded cases (verify.json) of lossy rules and of coupling, and what these rules report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "sampling/draw.h"
#include "tests/support/coupling.h"
#include "tests/support/enumeration.h"
#include "tests/support/fixed_numbers.h"
#include "tests/support/law_cases.h"
#include "tests/support/markov_rows.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"
#include "verify/relaxed.h"
#include "verify/typical.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Apply;
using testing::Emitted;
using testing::IsOk;
using testing::Law;
using testing::MakeRow;
using testing::Numbers;
using testing::Rows;
using testing::Tokens;

RuleOptions OptionsOf(const json& params) {
  RuleOptions options;
  options.typical_epsilon = params.value("epsilon", options.typical_epsilon);
  options.typical_delta = params.value("delta", options.typical_delta);
  options.relaxed_delta = params.value("delta", options.relaxed_delta);
  options.relaxed_top_n = params.value("top_n", options.relaxed_top_n);
  options.ensemble_weight = params.value("weight", options.ensemble_weight);
  return options;
}

// One drafted token, judged by the target's row and followed by a token of the same row.
struct OneToken {
  Law law;
  double acceptance = 0;
  double deviation = 0;
};

OneToken RunOne(const std::string& rule, const std::vector<double>& target,
                const ProposalDist<double>& dist, const RuleOptions& options, int32_t picked = -1) {
  OneToken result;
  bool accepted = false;
  testing::Enumerate(
      [&](Randomness& randomness) {
        Proposal<double> proposal;
        const int32_t token =
            picked >= 0 ? picked
                        : static_cast<int32_t>(
                              randomness.Draw({0, Purpose::kDraft}, dist.row().probs(), {}).index);
        proposal.tree.Add(-1, token);
        proposal.draft_rows.push_back(dist);
        const auto outcome = Apply<double>(
            rule, proposal, [&](const Tokens&) { return MakeRow<double>(target); }, randomness,
            options);
        EXPECT_THAT(outcome, IsOk());
        accepted = !outcome->path.empty();
        result.deviation = outcome->judged[0].deviation;
        return Tokens{Emitted(proposal.tree, *outcome)[0]};
      },
      [&](const Tokens& first, double probability) {
        result.law[first] += probability;
        result.acceptance += accepted ? probability : 0;
      });
  return result;
}

template <typename Real>
void ExpectAcceptedIds(const json& one) {
  const auto row = MakeRow<Real>(Numbers<double>(one["inputs"]["p"]));
  const RuleOptions options = OptionsOf(one["params"]);
  const bool typical = one["params"]["method"] == "typical";
  const double threshold = typical ? TypicalThreshold(row, options) : 0;
  const RelaxedMatch<Real> relaxed(row, options);
  if (typical) {
    EXPECT_NEAR(threshold, one["expected"]["threshold"].get<double>(),
                one["tolerance"].get<double>());
  }
  Tokens accepted;
  for (int32_t id = 0; id < row.vocab_size(); ++id) {
    const bool takes = typical ? row.Prob(id) > threshold : relaxed.Accepts(id);
    if (takes) accepted.push_back(id);
  }
  EXPECT_EQ(accepted, one["expected"]["accepted_ids"].get<Tokens>());
}

void RunLossy(const json& one) {
  const json& expected = one["expected"];
  if (expected.contains("accepted_ids")) {
    ExpectAcceptedIds<float>(one);
    return ExpectAcceptedIds<double>(one);
  }
  const auto target = Numbers<double>(one["inputs"]["p"]);
  const auto draft = MakeRow<double>(Numbers<double>(one["inputs"]["q"]));
  const OneToken result = RunOne(one["params"]["method"], target,
                                 ProposalDist<double>::Sampled(draft), OptionsOf(one["params"]));
  const double tolerance = one["tolerance"].get<double>();
  const auto row = [&](const Tokens&) { return MakeRow<double>(target); };
  testing::ExpectFirst(testing::LawFigures(result.law), expected["output"], tolerance);
  const double distance = testing::DistanceFrom(result.law, row);
  EXPECT_NEAR(distance, expected["total_variation"].get<double>(), tolerance);
  EXPECT_NEAR(result.deviation, distance, 1e-12);
  EXPECT_EQ(distance < 1e-12, expected["lossless"].get<bool>());
  if (expected.contains("acceptance")) {
    EXPECT_NEAR(result.acceptance, expected["acceptance"].get<double>(), tolerance);
  }
}

// Draws with the numbers of a case, one a token.
class CaseNoise : public Randomness {
 public:
  explicit CaseNoise(std::vector<double> uniforms) : uniforms_(std::move(uniforms)) {}
  CoinFlip Coin(const NoiseAddress&, double, double) override {
    ADD_FAILURE() << "coupled flips no coin";
    return {false, 0};
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t> ids) override {
    const std::vector<double> copy(weights.begin(), weights.end());
    return Draw(address, std::span<const double>(copy), ids);
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t>) override {
    // Only the position of the case has numbers; what follows an accepted draft is not asked.
    if (address.position > 0) return {0, 0};
    const auto token = DrawGumbel(weights, uniforms_);
    EXPECT_THAT(token, IsOk());
    return {*token, uniforms_[*token]};
  }

 private:
  std::vector<double> uniforms_;
};

template <typename Real>
void RunCoupledTrace(const json& one) {
  const auto target = MakeRow<Real>(Numbers<double>(one["inputs"]["p"]));
  const auto draft = MakeRow<Real>(Numbers<double>(one["inputs"]["q"]));
  CaseNoise noise(Numbers<double>(one["inputs"]["uniforms"]));
  Proposal<Real> proposal;
  proposal.tree.Add(-1, static_cast<int32_t>(noise.Draw({}, draft.probs(), {}).index));
  proposal.draft_rows.push_back(ProposalDist<Real>::Sampled(draft));
  EXPECT_EQ(proposal.tree.tokens[0], one["expected"]["draft"].get<int32_t>());
  const auto outcome = Apply<Real>("coupled", proposal,
                                   [&](const Tokens&) { return target; }, noise);
  ASSERT_THAT(outcome, IsOk());
  EXPECT_EQ(!outcome->path.empty(), one["expected"]["accepted"].get<bool>());
  EXPECT_EQ(Emitted(proposal.tree, *outcome)[0], one["expected"]["target"].get<int32_t>());
}

// The acceptance of one drafted token under each rule.
void RunSingle(const json& one) {
  const auto target = Numbers<double>(one["inputs"]["p"]);
  const auto draft = MakeRow<double>(Numbers<double>(one["inputs"]["q"]));
  const auto row = MakeRow<double>(target);
  const double distance = row.DivergenceFrom(draft).total_variation;
  const auto sampled = ProposalDist<double>::Sampled(draft);
  const std::map<std::string, double> measured = {
      {"standard", RunOne("standard", target, sampled, {}).acceptance},
      {"match", RunOne("match", target, sampled, {}).acceptance},
      {"match_argmax", RunOne("match", target, ProposalDist<double>::Deterministic(), {},
                              draft.Argmax())
                           .acceptance},
      {"coupled", testing::CoupledAcceptance(row, draft)},
      {"coupled_lower_bound", (1 - distance) / (1 + distance)}};
  for (const auto& [field, expected] : one["expected"].items()) {
    ASSERT_TRUE(measured.contains(field)) << field;
    EXPECT_NEAR(measured.at(field), expected.get<double>(), one["tolerance"].get<double>())
        << field;
  }
}

void RunCoupledLaw(const json& one) {
  const auto target = Rows<double>(one["inputs"], "target", "p");
  const auto draft = Rows<double>(one["inputs"], "draft", "q");
  Law law = testing::CoupledLaw(target, draft, one["params"]["k"].get<int32_t>());
  std::erase_if(law, [](const auto& entry) { return entry.second < 1e-13; });  // Rounding.
  testing::ExpectLaw(one, law, target, [](const std::string&, const json&) { return false; });
}

TEST(LossyCasesTest, EveryCaseHolds) {
  const json cases = testing::ReadJson("verify.json");
  int run = 0;
  for (const auto& one : cases["cases"]) {
    const std::string name = one["name"].get<std::string>();
    SCOPED_TRACE(name);
    if (name.starts_with("typical/") || name.starts_with("relaxed/") ||
        name.starts_with("ensemble/")) {
      RunLossy(one);
    } else if (name.starts_with("coupled/")) {
      RunCoupledLaw(one);
    } else if (name.starts_with("single/")) {
      RunSingle(one);
    } else if (name.starts_with("trace/coupled/")) {
      RunCoupledTrace<float>(one);
      RunCoupledTrace<double>(one);
    } else {
      continue;
    }
    ++run;
  }
  std::printf("[cases] verify.json: %d of lossy rules and of coupling\n", run);
  EXPECT_EQ(run, 37);
}

// What a lossy rule reports is how far its token is from the target's, also for picked drafts.
TEST(LossyCasesTest, DeviationIsTheDistanceOfTheEmittedToken) {
  const std::vector<double> target = {0.45, 0.35, 0.15, 0.05};
  const auto row = [&](const Tokens&) { return MakeRow<double>(target); };
  RuleOptions draws;
  draws.typical_draw = true;
  for (const RuleOptions& options : {RuleOptions(), draws}) {
    for (const char* rule : {"typical", "relaxed", "ensemble"}) {
      for (int32_t picked = 0; picked < 4; ++picked) {
        const OneToken result = RunOne(rule, target, ProposalDist<double>::Deterministic(), options,
                                       picked);
        EXPECT_NEAR(result.deviation, testing::DistanceFrom(result.law, row), 1e-12)
            << rule << ", token " << picked;
      }
    }
  }
}

TEST(LossyCasesTest, OptionsAreCheckedByName) {
  RuleOptions options;
  EXPECT_THAT(options.Validate(), IsOk());
  options.ensemble_weight = 1.5;
  EXPECT_THAT(options.Validate(),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("ensemble_weight: expected a number in [0, 1]")));
}

}  // namespace
}  // namespace paceline
