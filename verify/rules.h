// The table of acceptance rules by name.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "sampling/options.h"
#include "verify/rule.h"

namespace paceline {

// Rules that treat every setting alike: a column of the matrix (algorithms H).
enum class RuleGroup { kTargetDraws, kStandard, kBlock, kCandidates, kCoupled, kLossy };
inline constexpr int kNumRuleGroups = 6;

struct Rule {
  std::string_view name;  // As in options, telemetry and JSON.
  RuleGroup group;
  std::string_view summary;
  bool lossless;   // The emitted tokens follow the target's law exactly.
  bool invariant;  // One seed gives the same tokens whatever the draft.
  bool trees;      // Takes trees as well as chains.
  absl::StatusOr<VerifyOutcome> (*verify)(const RuleInput<float>& input);
  absl::StatusOr<VerifyOutcome> (*verify_double)(const RuleInput<double>& input);
};

// How tokens are drawn under `rule`: as the options say, else with Gumbel noise where it needs that.
inline DrawMethod DrawMethodOf(const Rule& rule, const SamplingOptions& options) {
  const bool coupled = rule.group == RuleGroup::kCoupled;
  return options.draw.value_or(coupled ? DrawMethod::kGumbel : DrawMethod::kInverseCdf);
}

// Whether the rule reads noise behind a refusal, so that it must not be read again.
inline bool LooksAhead(const Rule& rule) { return rule.group == RuleGroup::kBlock; }

// The instance of `rule` for the type of the input's rows.
inline absl::StatusOr<VerifyOutcome> VerifyBy(const Rule& rule, const RuleInput<float>& input) {
  return rule.verify(input);
}
inline absl::StatusOr<VerifyOutcome> VerifyBy(const Rule& rule, const RuleInput<double>& input) {
  return rule.verify_double(input);
}

// Every rule there is. A new rule is one file and one row here.
std::span<const Rule> Rules();

// The rule `name` (`spechub` is `sampled-first`); otherwise the rules there are by name: kUnimplemented for one that is not built yet,
// kInvalidArgument for one that nobody knows.
absl::StatusOr<const Rule*> FindRule(std::string_view name);

}  // namespace paceline
