#include "models/text_steps.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/utf8_runs.h"

namespace paceline::internal {
namespace {

using Kind = TextStep::Kind;

constexpr size_t kMostBytes = 64;  // Of what is put in: a file must not blow up a prompt.

const icu::Normalizer2* NormalFormOf(Kind kind) {
  UErrorCode error = U_ZERO_ERROR;
  switch (kind) {
    case Kind::kNfc:
      return icu::Normalizer2::getNFCInstance(error);
    case Kind::kNfd:
      return icu::Normalizer2::getNFDInstance(error);
    case Kind::kNfkc:
      return icu::Normalizer2::getNFKCInstance(error);
    default:
      return icu::Normalizer2::getNFKDInstance(error);
  }
}

// Well-formed runs in the normal form, the others as they are.
std::string Normalised(const icu::Normalizer2* form, std::string_view text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    bool well_formed = true;
    const size_t end = EndOfRun(text, begin, well_formed);
    const std::string_view run = text.substr(begin, end - begin);
    begin = end;
    UErrorCode error = U_ZERO_ERROR;
    std::string normal;
    if (well_formed && form != nullptr) {
      icu::StringByteSink<std::string> sink(&normal);
      form->normalizeUTF8(0, icu::StringPiece(run.data(), static_cast<int32_t>(run.size())), sink,
                          nullptr, error);
    }
    const bool has_form = well_formed && form != nullptr && U_SUCCESS(error);
    result += has_form ? std::string_view(normal) : run;
  }
  return result;
}

std::string Apply(const TextStep& step, std::string text) {
  switch (step.kind) {
    case Kind::kReplace:
      return absl::StrReplaceAll(text, {{step.from, step.to}});
    case Kind::kPrepend:
      return step.to + text;
    case Kind::kPrependMissing:
      return text.starts_with(step.to) ? text : step.to + text;
    default:
      return Normalised(NormalFormOf(step.kind), text);
  }
}

}  // namespace

absl::Status CheckTextSteps(std::span<const TextStep> steps) {
  for (const TextStep& step : steps) {
    const bool replaces = step.kind == Kind::kReplace;
    if ((replaces && step.from.empty()) || step.to.size() > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer normaliser: expected a replacement of something by at most ",
                       kMostBytes, " bytes, got ", step.from.size(), " bytes by ", step.to.size()));
    }
  }
  return absl::OkStatus();
}

std::string ApplyTextSteps(std::span<const TextStep> steps, std::string_view text, bool at_start) {
  std::string result(text);
  for (const TextStep& step : steps) {
    if (result.empty()) break;
    if (at_start || !step.at_start_only) result = Apply(step, std::move(result));
  }
  return result;
}

}  // namespace paceline::internal
