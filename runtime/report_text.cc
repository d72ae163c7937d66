#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/report.h"

namespace paceline {
namespace {

std::string Line(absl::string_view name, absl::string_view value, absl::string_view note = "") {
  std::string line = absl::StrFormat("  %-14s %s", name, value);
  if (!note.empty()) absl::StrAppendFormat(&line, "  (%s)", note);
  return line + "\n";
}

std::string Fixed(std::optional<double> value, int digits) {
  return value ? absl::StrFormat("%.*f", digits, *value) : "-";
}

std::string Percent(std::optional<double> rate) {
  return rate ? absl::StrFormat("%.1f %%", *rate * 100) : "-";
}

std::string PromptLine(const Summary& summary) {
  std::string value =
      absl::StrFormat("%d tokens read in %.0f ms", summary.prompt_tokens, summary.prefill_ms);
  if (summary.num_answers != 1) absl::StrAppend(&value, ", ", summary.num_answers, " answers");
  return Line("prompt", value);
}

std::string Endings(const Summary& summary) {
  std::string text;
  for (const auto& [reason, count] : summary.endings) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", reason);
    if (summary.num_answers != 1) absl::StrAppend(&text, " ", count, "x");
  }
  return text.empty() ? "-" : text;
}

std::string OutputLine(const Summary& summary) {
  const Telemetry& telemetry = summary.telemetry;
  return Line("output", absl::StrFormat("%d tokens in %.0f ms = %s tokens/s; ended by: %s",
                                        telemetry.num_emitted_tokens, telemetry.rounds_ms,
                                        Fixed(telemetry.TokensPerSecond(), 1), Endings(summary)));
}

std::string DraftLine(const Summary& summary) {
  if (summary.run.draft == "none") return Line("draft", "none: one token a target pass");
  return Line("draft", absl::StrCat(summary.run.draft, ", up to ", summary.run.max_draft_tokens,
                                    " tokens a round"));
}

std::string RuleLine(const Summary& summary) {
  return Line("rule", absl::StrCat(summary.rule,
                                   summary.lossless
                                       ? "; lossless: the same distribution as without drafting"
                                       : "; lossy: not the distribution of the model"));
}

std::string AcceptanceLines(const Telemetry& telemetry) {
  std::string text =
      Line("rounds", absl::StrFormat("%d target passes, %d with a draft; %s tokens each",
                                     telemetry.num_rounds, telemetry.num_drafts,
                                     Fixed(telemetry.TokensPerRound(), 2)));
  text += Line("accepted",
               absl::StrFormat("%s: %d of %d drafted tokens", Percent(telemetry.AcceptanceRate()),
                               telemetry.num_accepted_tokens, telemetry.num_draft_tokens));
  text += Line("mean length", Fixed(telemetry.MeanAcceptanceLength(), 2),
               "mean acceptance length: tokens a drafting round gives, bonus included");
  std::string positions;
  for (double rate : telemetry.AcceptedPerPosition()) {
    absl::StrAppendFormat(&positions, "%s%.0f %%", positions.empty() ? "" : "  ", rate * 100);
  }
  return text + Line("by position", positions.empty() ? "-" : positions,
                     "share of drafts accepted up to token 1, 2, ...");
}

std::string ExpectedLines(const Telemetry& telemetry) {
  std::string text =
      Line("expected", Percent(telemetry.expected_acceptance.Value()),
           "acceptance the two distributions allow, mean sum min(p, q) of judged tokens");
  const Interval interval = telemetry.JudgedAcceptanceInterval();
  const std::optional<double> observed = telemetry.JudgedAcceptance();
  std::string value = Percent(observed);
  if (observed) {
    absl::StrAppendFormat(&value, ", 95 %% interval %.1f to %.1f %%", interval.low * 100,
                          interval.high * 100);
  }
  text += Line("observed", value,
               absl::StrCat("of the ", telemetry.expected_acceptance.count,
                            " judged tokens; the rest lay behind a refusal"));
  if (telemetry.deviation.count > 0) {
    text += Line("deviation", Fixed(telemetry.deviation.Value(), 4),
                 "total variation of a judged token from the model's distribution, mean");
  }
  return text + Line("entropy", absl::StrCat(Fixed(telemetry.entropy_bits_raw.Value(), 2),
                                             " bits of the model, ",
                                             Fixed(telemetry.entropy_bits_warped.Value(), 2),
                                             " after temperature and filters"));
}

std::string TimeLine(const Telemetry& telemetry) {
  const auto part = [&](absl::string_view name, double ms) {
    const std::string share =
        telemetry.rounds_ms > 0 ? absl::StrFormat("%.1f %%", 100 * ms / telemetry.rounds_ms) : "-";
    return absl::StrFormat("%s %.0f ms (%s)", name, ms, share);
  };
  return Line("time", absl::StrCat(part("draft", telemetry.draft_ms), ", ",
                                   part("target", telemetry.target_ms), ", ",
                                   part("verify", telemetry.verify_ms)));
}

}  // namespace

void Summary::Add(const GenerationResult& result, const Choice& choice) {
  telemetry.Merge(choice.telemetry);
  ++num_answers;
  if (&choice == &result.choices.front()) {  // Choices share their prompt.
    prompt_tokens += result.prompt_tokens;
    prefill_ms += result.prefill_ms;
  }
  ++endings[AnswerEnding(choice)];
  rule = result.rule;
  lossless = result.lossless;
}

std::string SummaryText(const Summary& summary) {
  std::string text = PromptLine(summary) + OutputLine(summary) + DraftLine(summary) +
                     RuleLine(summary) + AcceptanceLines(summary.telemetry);
  text += ExpectedLines(summary.telemetry) + TimeLine(summary.telemetry);
  return text + Line("seed", absl::StrCat(summary.seed));
}

}  // namespace paceline
