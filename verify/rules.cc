#include "verify/rules.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "verify/block.h"
#include "verify/ensemble.h"
#include "verify/k_seq.h"
#include "verify/match.h"
#include "verify/relaxed.h"
#include "verify/rrs.h"
#include "verify/sampled_first.h"
#include "verify/standard.h"
#include "verify/traversal.h"
#include "verify/typical.h"

namespace paceline {
namespace {

constexpr std::string_view kNotBuilt[] = {"synthetic"};

// Other names of a rule.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {{"spechub", "sampled-first"}};

}  // namespace

std::string_view DecisionName(Decision decision) {
  switch (decision) {
    case Decision::kAccepted:
      return "accepted";
    case Decision::kRejected:
      return "rejected";
    case Decision::kRecovered:
      return "recovered";
    case Decision::kBonus:
      return "bonus";
    case Decision::kPlain:
      return "plain";
  }
  return "";
}

#define PACELINE_RULE(function) function<float>, function<double>

std::span<const Rule> Rules() {
  static constexpr Rule kRules[] = {
      {"standard", RuleGroup::kStandard, "accept with min(1, p/q), redraw from the residual",
       true, false, false, PACELINE_RULE(VerifyStandard)},
      {"block", RuleGroup::kBlock, "judge the draft as a whole: never shorter than standard",
       true, false, false, PACELINE_RULE(VerifyBlock)},
      {"match", RuleGroup::kTargetDraws, "the target draws; a draft is accepted while equal",
       true, true, true, PACELINE_RULE(VerifyMatch)},
      {"walk", RuleGroup::kTargetDraws, "match by its name for trees",
       true, true, true, PACELINE_RULE(VerifyMatch)},
      {"greedy", RuleGroup::kTargetDraws, "the target's argmax; a draft is accepted while equal",
       true, true, true, PACELINE_RULE(VerifyGreedy)},
      {"coupled", RuleGroup::kCoupled, "draft and target draw with the same Gumbel noise",
       true, true, false, PACELINE_RULE(VerifyCoupled)},
      {"rrs", RuleGroup::kCandidates, "standard, candidate after candidate, on what the last left",
       true, false, true, PACELINE_RULE(VerifyRrs)},
      {"k-seq", RuleGroup::kCandidates, "candidates drawn with replacement, accepted with p/(rho q)",
       true, false, true, PACELINE_RULE(VerifyKSeq)},
      {"sampled-first", RuleGroup::kCandidates, "picked candidates and a drawn one, judged first",
       true, false, true, PACELINE_RULE(VerifySampledFirst)},
      {"traversal", RuleGroup::kBlock, "a drawn tree from its leaves to its root; block on a chain",
       true, false, true, PACELINE_RULE(VerifyTraversal)},
      {"typical", RuleGroup::kLossy, "accept what the target finds likely enough",
       false, false, true, PACELINE_RULE(VerifyTypical)},
      {"relaxed", RuleGroup::kLossy, "accept what comes close to the target's likeliest token",
       false, false, true, PACELINE_RULE(VerifyRelaxed)},
      {"ensemble", RuleGroup::kLossy, "standard against a mixture of draft and target",
       false, false, false, PACELINE_RULE(VerifyEnsemble)},
  };
  return kRules;
}
#undef PACELINE_RULE

absl::Status RuleOptions::Validate() const {
  const auto check = [](std::string_view name, double value, double least, double most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": expected a number in [",
                                                   least, ", ", most, "], got ", value));
  };
  PACELINE_RETURN_IF_ERROR(check("typical_epsilon", typical_epsilon, 0, 1));
  PACELINE_RETURN_IF_ERROR(check("typical_delta", typical_delta, 0, 1));
  PACELINE_RETURN_IF_ERROR(
      check("relaxed_top_n", relaxed_top_n, 1, std::numeric_limits<int32_t>::max()));
  PACELINE_RETURN_IF_ERROR(check("relaxed_delta", relaxed_delta, 0, 1));
  return check("ensemble_weight", ensemble_weight, 0, 1);
}

absl::StatusOr<const Rule*> FindRule(std::string_view name) {
  for (const auto& [alias, canonical] : kAliases) {
    if (name == alias) name = canonical;
  }
  std::string known;
  for (const Rule& rule : Rules()) {
    if (rule.name == name) return &rule;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(rule.name));
  }
  const bool planned = std::find(std::begin(kNotBuilt), std::end(kNotBuilt), name) != std::end(kNotBuilt);
  return absl::Status(
      planned ? absl::StatusCode::kUnimplemented : absl::StatusCode::kInvalidArgument,
      absl::StrCat("verify: expected one of ", known, ", got '", std::string(name), "'",
                   planned ? ", which is not built yet" : ""));
}

}  // namespace paceline
