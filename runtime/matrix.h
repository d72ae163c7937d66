// Which settings a rule honours exactly, and which are refused: one table, read by admission, by
// `paceline matrix`, by docs/matrix.md and by the tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "runtime/request.h"
#include "verify/rules.h"

namespace paceline {

enum class Verdict {
  kExact,    // The emitted tokens follow the target's processed distribution.
  kLossy,    // Works, and the result says lossless = false.
  kRefused,  // At admission, before any pass.
  kNone,     // Cannot be asked for.
};

struct Cell {
  Verdict verdict;
  int note = 0;  // Number of a note in MatrixNotes; 0 is none.
};

struct Feature {
  std::string_view name;
  Cell cells[kNumRuleGroups];
  std::string_view reason;
  std::string_view not_built;  // What of it this build lacks; empty if it has all.
  // Whether a request asks for it; null where a request cannot say so.
  bool (*asked)(const GenerationRequest& request);
};
std::span<const Feature> Features();

struct MatrixNote {
  int number;
  absl::StatusCode code;
  std::string_view message;
};
std::span<const MatrixNote> MatrixNotes();

// The column that judges a request whose rule there is: the target's own draws at temperature 0, and
// under `standard` where nothing is drawn from q.
RuleGroup GroupOf(const GenerationRequest& request);

// OK if every feature that `request` asks for is honoured. Otherwise the code and message of the
// first cell that refuses, which names feature, rule and the nearest exact alternative.
absl::Status CheckMatrix(const GenerationRequest& request);

// The table for people: columns in plain text, or Markdown.
std::string MatrixText();
std::string MatrixMarkdown();

}  // namespace paceline
