#include "runtime/matrix.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sampling/guidance.h"

namespace paceline {
namespace {

constexpr Cell kE{Verdict::kExact};
constexpr Cell kF{Verdict::kLossy};
constexpr Cell kNo{Verdict::kNone};
constexpr Cell X(int note) { return {Verdict::kRefused, note}; }

struct RuleGroupInfo {
  std::string_view letter;
  std::string_view rules;  // Names, and under which condition.
};

// In the order of RuleGroup.
constexpr RuleGroupInfo kGroups[kNumRuleGroups] = {
    {"G", "greedy, match, walk; standard on a deterministic chain"},
    {"S", "standard"},
    {"B", "block, traversal"},
    {"R", "rrs, k-seq, sampled-first"},
    {"C", "coupled"},
    {"L", "typical, relaxed, ensemble, synthetic"},
};

constexpr MatrixNote kNotes[] = {
    {1, absl::StatusCode::kInvalidArgument,
     "require_exact: expected a lossless rule (standard, block, match, coupled, rrs, traversal, ...), "
     "got a lossy one"},
    {2, absl::StatusCode::kInvalidArgument,
     "invariant: expected a rule whose tokens do not depend on the draft (match, coupled; greedy at "
     "temperature 0; standard with a deterministic draft)"},
    {3, absl::StatusCode::kFailedPrecondition,
     "a logit processor with hidden state cannot be taken back: expected no drafting"},
    {5, absl::StatusCode::kInvalidArgument,
     "beam search draws nothing: expected a deterministic draft and rule greedy"},
    {6, absl::StatusCode::kUnimplemented, "not offered under this rule"},
    {7, absl::StatusCode::kFailedPrecondition,
     "the rule needs draft probabilities: expected match or walk for a draft without them"},
    {8, absl::StatusCode::kInvalidArgument,
     "the rule expects a sampled draft or a chain: match and walk take any"},
    {9, absl::StatusCode::kInvalidArgument,
     "nodes chosen by what was drawn are not draws from q: match, walk and coupled take them"},
    {11, absl::StatusCode::kUnimplemented, "states cannot be kept for a tree"},
};

bool UsesBias(const GenerationRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  return !sampling.logit_bias.empty() || !sampling.allowed_ids.empty() ||
         !sampling.bad_words.empty() || sampling.min_tokens > 0;
}

bool UsesPenalties(const GenerationRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  return sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 ||
         sampling.presence_penalty != 0 || sampling.no_repeat_ngram_size > 0 ||
         sampling.dry_multiplier > 0;
}

// Order and cells as in algorithms H.
constexpr std::string_view kAll = "all";
constexpr Feature kFeatures[] = {
    {"temperature 0", {kE, kE, kE, kE, kE, kF}, "every exact rule is then the greedy match", "",
     [](const GenerationRequest& request) { return request.sampling.temperature == 0; }},
    {"temperature, dynatemp, top-k, top-p, min-p, typical, epsilon, eta, top-n-sigma, top-h",
     {kE, kE, kE, kE, kE, kF}, "a row is a function of its prefix", "",
     [](const GenerationRequest& request) { return request.sampling.temperature != 0; }},
    {"logit bias, allowed ids, bad words, min_tokens", {kE, kE, kE, kE, kE, kF},
     "a row is a function of its prefix", "", UsesBias},
    {"repetition, frequency and presence penalties, no-repeat n-gram, DRY",
     {kE, kE, kE, kE, kE, kF}, "each row or node has its own history", "",
     UsesPenalties},
    {"XTC", {kE, kE, kE, kE, kE, kF}, "one coin a position", "",
     [](const GenerationRequest& request) { return request.sampling.xtc_probability > 0; }},
    {"mirostat v2", {kE, kE, kE, kE, kE, kF}, "mu follows the path; only committed tokens move it",
     "", [](const GenerationRequest& request) { return request.sampling.mirostat_tau > 0; }},
    {"grammar, JSON schema, regular expression", {kE, kE, kE, kE, kE, kF}, "a mask for each node",
     kAll, nullptr},
    {"log-probabilities, raw or processed, and alternatives", {kE, kE, kE, kE, kE, kF},
     "from the rows of the emitted tokens, never from residuals", "",
     [](const GenerationRequest& request) { return request.num_logprobs >= 0; }},
    {"several choices (n), best-of", {kE, kE, kE, kE, kE, kF}, "a random stream for each", "",
     [](const GenerationRequest& request) { return NumStreams(request) > 1; }},
    {"guidance", {kE, kE, kE, kE, kE, kF}, "both streams verify the same draft", "",
     [](const GenerationRequest& request) { return GuidanceActive(request.sampling); }},
    {"streaming, stop strings, stop ids", {kE, kE, kE, kE, kE, kF},
     "cut behind the accepted prefix; partial matches are held back", "",
     [](const GenerationRequest& request) {
       return !request.stop.empty() || !request.stop_ids.empty();
     }},
    {"seed", {kE, kE, kE, kE, kE, kF}, "noise is addressed by position, never advanced", "",
     [](const GenerationRequest& request) { return request.seed.has_value(); }},
    {"invariant: one seed, one text, with or without drafts",
     {kE, X(2), X(2), X(2), kE, X(2)}, "only rules whose target draws for itself", "",
     [](const GenerationRequest& request) { return request.speculation.invariant; }},
    {"logit processor, a function of the prefix", {kE, kE, kE, kE, kE, kF},
     "called once a row, with the row's history", kAll, nullptr},
    {"logit processor with hidden state", {X(3), X(3), X(3), X(3), X(3), X(3)},
     "it could not be taken back", kAll, nullptr},
    {"beam search", {kE, X(5), X(5), X(5), X(5), X(5)}, "deterministic drafts, replayed", kAll,
     nullptr},
    {"stochastic beams", {X(6), X(6), X(6), X(6), X(6), X(6)}, "", kAll, nullptr},
    {"require_exact", {kE, kE, kE, kE, kE, X(1)}, "a lossy rule contradicts it", "",
     [](const GenerationRequest& request) { return request.speculation.require_exact; }},
    {"draft without probabilities", {kE, X(7), X(7), X(7), X(7), kF}, "q is not known", kAll,
     nullptr},
    {"deterministic chain (n-gram)", {kE, kE, kE, X(8), kE, kF}, "q is one-hot", "",
     [](const GenerationRequest& request) {
       return request.speculation.draft == DraftKind::kNgram;
     }},
    {"deterministic tree", {kE, X(8), X(8), X(8), X(8), kF}, "siblings were not drawn from q",
     "drafters of trees", nullptr},
    {"sampled tree", {kE, X(8), kE, kE, X(6), kF}, "walk and traversal", "drafters of trees",
     nullptr},
    {"sampled nodes dropped or ranked by their own probability",
     {kE, X(9), X(9), X(9), kE, kF}, "a biased choice where q enters the rule", kAll, nullptr},
    {"early stop on drawn tokens (draft_min keeps them)", {kE, kE, kE, kE, kE, kF},
     "the length is a stopping time of the draft", "", nullptr},
    {"candidates without replacement", {kE, kNo, kE, kE, kNo, kF}, "not k-seq",
     "drafters of candidates", nullptr},
    {"mixed drafters, a candidate each", {kE, kNo, X(6), kE, X(6), kF}, "rrs alone",
     "drafters of candidates", nullptr},
    {"sliding-window target", {kE, kE, kE, kE, kE, kF}, "windows go by position", kAll, nullptr},
    {"recurrent layers", {kE, kE, kE, X(11), kE, kF}, "chains, with snapshots of the state", kAll,
     nullptr},
    {"context would overflow", {kE, kE, kE, kE, kE, kF}, "the draft is cut", "", nullptr},
};

const MatrixNote& NoteOf(int number) {
  return *std::find_if(std::begin(kNotes), std::end(kNotes),
                       [&](const MatrixNote& note) { return note.number == number; });
}

std::string CellText(const Cell& cell) {
  switch (cell.verdict) {
    case Verdict::kExact:
      return "E";
    case Verdict::kLossy:
      return "F";
    case Verdict::kRefused:
      return absl::StrCat("X", cell.note);
    case Verdict::kNone:
      return "-";
  }
  return "";
}

std::string BuiltText(const Feature& feature) {
  if (feature.not_built.empty()) return "built";
  if (feature.not_built == kAll) return "not built";
  return absl::StrCat("built but ", std::string(feature.not_built));
}

std::string Legend() {
  std::string built;
  for (const Rule& rule : Rules()) {
    absl::StrAppend(&built, built.empty() ? "" : ", ", std::string(rule.name));
  }
  return absl::StrCat("E exact, F works and is flagged lossy, X refused (see the notes), - cannot be "
                      "asked for.\nRules in this build: ",
                      built, ". What is not built is refused.\n");
}

std::string Rows(bool markdown) {
  std::string text;
  for (const Feature& feature : kFeatures) {
    const std::string name(feature.name);
    text += markdown ? "| " + name : absl::StrFormat("%-88s", name);
    for (const Cell& cell : feature.cells) {
      text += markdown ? " | " + CellText(cell) : absl::StrFormat(" %-3s", CellText(cell));
    }
    text += (markdown ? " | " : "  ") + BuiltText(feature);
    text += markdown ? " | " + std::string(feature.reason) + " |\n" : "\n";
  }
  return text;
}

std::string NoteLines() {
  std::string text;
  for (const MatrixNote& note : kNotes) {
    text += absl::StrFormat("- X%d: %s. %s.\n", note.number,
                            absl::StatusCodeToString(note.code), std::string(note.message));
  }
  return text;
}

}  // namespace

std::span<const Feature> Features() { return kFeatures; }
std::span<const MatrixNote> MatrixNotes() { return kNotes; }

RuleGroup GroupOf(const GenerationRequest& request) {
  const RuleGroup group = (*FindRule(request.speculation.verify))->group;
  if (request.sampling.temperature == 0 && group != RuleGroup::kLossy) {
    return RuleGroup::kTargetDraws;
  }
  const DraftKind draft = request.speculation.draft;
  const bool sampled = draft == DraftKind::kModel || draft == DraftKind::kEarlyExit;
  return group == RuleGroup::kStandard && !sampled ? RuleGroup::kTargetDraws : group;
}

absl::Status CheckMatrix(const GenerationRequest& request) {
  const auto group = static_cast<int>(GroupOf(request));
  for (const Feature& feature : kFeatures) {
    if (feature.asked == nullptr || !feature.asked(request)) continue;
    const Cell& cell = feature.cells[group];
    if (cell.verdict != Verdict::kRefused) continue;
    const MatrixNote& note = NoteOf(cell.note);
    return absl::Status(note.code, absl::StrCat(std::string(note.message), ", got rule ",
                                                request.speculation.verify, " with draft ",
                                                std::string(DraftKindName(
                                                    request.speculation.draft))));
  }
  return absl::OkStatus();
}

std::string MatrixText() {
  std::string text = Legend() + "\n";
  for (const RuleGroupInfo& group : kGroups) {
    text += absl::StrFormat("  %s  %s\n", std::string(group.letter), std::string(group.rules));
  }
  text += absl::StrFormat("\n%-88s", "feature of a request");
  for (const RuleGroupInfo& group : kGroups) text += absl::StrFormat(" %-3s", std::string(group.letter));
  return text + "\n" + Rows(false) + "\n" + NoteLines();
}

std::string MatrixMarkdown() {
  std::string text = "# Exact or refused\n\n`paceline matrix --markdown` prints this page.\n\n" +
                     Legend() + "\n";
  for (const RuleGroupInfo& group : kGroups) {
    text += absl::StrFormat("- **%s**: %s\n", std::string(group.letter), std::string(group.rules));
  }
  text += "\n| Feature of a request | G | S | B | R | C | L | Here | Why |\n";
  text += "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  return text + Rows(true) + "\n" + NoteLines();
}

}  // namespace paceline
