#include "runtime/request.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "verify/rules.h"

namespace paceline {
namespace {

constexpr int32_t kMaxDraftTokens = 64;
constexpr DraftKind kDraftKinds[] = {DraftKind::kNone, DraftKind::kNgram, DraftKind::kModel,
                                     DraftKind::kEarlyExit};

}  // namespace

std::string_view DraftKindName(DraftKind kind) {
  switch (kind) {
    case DraftKind::kNone:
      return "none";
    case DraftKind::kNgram:
      return "ngram";
    case DraftKind::kModel:
      return "model";
    case DraftKind::kEarlyExit:
      return "early-exit";
  }
  return "";
}

absl::StatusOr<DraftKind> FindDraftKind(std::string_view name) {
  for (DraftKind kind : kDraftKinds) {
    if (DraftKindName(kind) == name) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "draft: expected one of none, ngram, model, early-exit, got '", std::string(name), "'"));
}

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

absl::Status SpeculationOptions::Validate() const {
  if (num_draft_tokens < 1 || num_draft_tokens > kMaxDraftTokens) {
    return absl::InvalidArgumentError(absl::StrCat("draft_tokens: expected a number in [1, ",
                                                   kMaxDraftTokens, "], got ", num_draft_tokens,
                                                   "; draft none turns drafting off"));
  }
  if (draft_min < 0 || draft_min > num_draft_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("draft_min: expected a number in [0, ",
                                                   num_draft_tokens, " (draft_tokens)], got ",
                                                   draft_min));
  }
  PACELINE_RETURN_IF_ERROR(FindRule(verify).status());
  PACELINE_RETURN_IF_ERROR(rule.Validate());
  return ngram.Validate();
}

}  // namespace paceline
