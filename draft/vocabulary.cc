#include "draft/vocabulary.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

absl::Status Differ(absl::string_view what, absl::string_view target, absl::string_view draft) {
  return absl::FailedPreconditionError(
      absl::StrCat("draft model: expected the target's vocabulary; ", what, " is ", target,
                   " in the target, ", draft, " in the draft"));
}

std::string Quoted(std::string_view piece) {
  return absl::StrCat("'", absl::CHexEscape(std::string(piece)), "'");
}

std::string IdText(std::optional<int32_t> id) { return id ? absl::StrCat(*id) : "none"; }

absl::Status CompareSpecial(absl::string_view name, std::optional<int32_t> target,
                            std::optional<int32_t> draft) {
  if (target == draft) return absl::OkStatus();
  return Differ(absl::StrCat("the ", name, " token"), IdText(target), IdText(draft));
}

}  // namespace

absl::Status CompareVocabularies(const Tokenizer& target, const Tokenizer& draft) {
  const int32_t shared = std::min(target.vocab_size(), draft.vocab_size());
  for (int32_t id = 0; id < shared; ++id) {
    const std::string_view mine = target.Piece(id, /*show_control=*/true);
    const std::string_view theirs = draft.Piece(id, /*show_control=*/true);
    if (mine != theirs) return Differ(absl::StrCat("id ", id), Quoted(mine), Quoted(theirs));
    if (target.IsControl(id) != draft.IsControl(id)) {
      return Differ(absl::StrCat("id ", id, " ", Quoted(mine)),
                    target.IsControl(id) ? "a control token" : "text",
                    draft.IsControl(id) ? "a control token" : "text");
    }
  }
  if (target.vocab_size() != draft.vocab_size()) {
    return Differ("the number of tokens", absl::StrCat(target.vocab_size()),
                  absl::StrCat(draft.vocab_size()));
  }
  PACELINE_RETURN_IF_ERROR(CompareSpecial("begin", target.spec().bos_id, draft.spec().bos_id));
  PACELINE_RETURN_IF_ERROR(CompareSpecial("end", target.spec().eos_id, draft.spec().eos_id));
  return CompareSpecial("end-of-turn", target.spec().eot_id, draft.spec().eot_id);
}

}  // namespace paceline
