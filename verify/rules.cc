#include "verify/rules.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "verify/block.h"
#include "verify/match.h"
#include "verify/standard.h"

namespace paceline {
namespace {

constexpr std::string_view kNotBuilt[] = {"coupled",   "rrs",     "k-seq",   "sampled-first",
                                          "spechub",   "walk",    "traversal", "typical",
                                          "relaxed",   "ensemble", "synthetic"};

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

std::span<const Rule> Rules() {
  static constexpr Rule kRules[] = {
      {"standard", RuleGroup::kStandard, "accept with min(1, p/q), redraw from the residual", true, false, false,
       VerifyStandard<float>, VerifyStandard<double>},
      {"block", RuleGroup::kBlock, "judge the draft as a whole: never shorter than standard", true, false, false,
       VerifyBlock<float>, VerifyBlock<double>},
      {"match", RuleGroup::kTargetDraws, "the target draws; a draft is accepted while equal", true, true, true,
       VerifyMatch<float>, VerifyMatch<double>},
      {"greedy", RuleGroup::kTargetDraws, "the target's argmax; a draft is accepted while equal", true, true, true,
       VerifyGreedy<float>, VerifyGreedy<double>},
  };
  return kRules;
}

absl::StatusOr<const Rule*> FindRule(std::string_view name) {
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
