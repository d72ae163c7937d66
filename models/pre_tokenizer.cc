#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/pre_tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/utf8_runs.h"

namespace paceline::internal {
namespace {

#define LLAMA3_WITH_DIGITS(digits)                                   \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"                                    \
  R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr const char* kSingleDigits = R"(\p{N})";
constexpr const char* kLlama3 = LLAMA3_WITH_DIGITS(R"(\p{N}{1,3})");
constexpr const char* kQwen2 = LLAMA3_WITH_DIGITS(R"(\p{N})");

struct PatternSet {
  std::string_view name;  // As `tokenizer.ggml.pre` writes it.
  const char* stages[2];  // The second may be null.
};

// "default", what a file without the key means, is left out on purpose: readers take an old set of
// four patterns for it that is right for hardly any model.
constexpr PatternSet kPatternSets[] = {
    {"gpt-2", {kGpt2Words, nullptr}},
    {"phi-2", {kGpt2Words, nullptr}},
    {"olmo", {kGpt2Words, nullptr}},
    {"smollm", {kSingleDigits, kGpt2Words}},
    {"starcoder", {kSingleDigits, kGpt2Words}},
    {"refact", {kSingleDigits, kGpt2Words}},
    {"codeshell", {kSingleDigits, kGpt2Words}},
    {"llama-bpe", {kLlama3, nullptr}},
    {"llama3", {kLlama3, nullptr}},
    {"qwen2", {kQwen2, nullptr}},
    {"deepseek-r1-qwen", {kQwen2, nullptr}},
    {"stablelm2", {kQwen2, nullptr}},
};

// Steps of one match. A run of white space costs about one step a character, anything else a few a
// word: the limit stops only what no text needs.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kDepthLimit = 10'000;
constexpr uint32_t kHeapKilobytes = 32'768;
constexpr size_t kMostPatternBytes = 16'384;

struct PcreDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, PcreDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, PcreDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, PcreDeleter>;

std::string PcreMessage(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

// White space of Unicode's property: PCRE2's own \s also holds U+180E, which left it.
std::string WithUnicodeSpaces(std::string_view pattern) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool escape = pattern[i] == '\\' && i + 1 < pattern.size();
    if (escape && (pattern[i + 1] == 's' || pattern[i + 1] == 'S')) {
      result += pattern[i + 1] == 's' ? R"(\p{White_Space})" : R"(\P{White_Space})";
    } else {
      result += pattern.substr(i, escape ? 2 : 1);
    }
    if (escape) ++i;
  }
  return result;
}

absl::Status BadPattern(std::string_view pattern, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer pattern '", absl::CHexEscape(std::string(pattern.substr(0, 64))),
                   "': ", std::string(why)));
}

// Patterns come from files as well: what could match nothing, or grow without bound, is refused.
absl::StatusOr<Code> Compile(const SplitRule& rule) {
  if (rule.pattern.size() > kMostPatternBytes) {
    return BadPattern(rule.pattern, absl::StrCat("expected at most ", kMostPatternBytes, " bytes"));
  }
  const std::string pattern = rule.literal ? rule.pattern : WithUnicodeSpaces(rule.pattern);
  const uint32_t options =
      rule.literal ? PCRE2_LITERAL | PCRE2_UTF : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                          &error, &offset, nullptr));
  if (code == nullptr) return BadPattern(rule.pattern, PcreMessage(error));
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) return BadPattern(rule.pattern, "expected one that matches something");
  // Without a just-in-time compiler the interpreter gives the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

struct Stage {
  Code code;
  SplitRule::Matches matches = SplitRule::Matches::kIsolated;
  bool invert = false;
};

// A match, or a stretch between matches.
struct Part {
  std::string_view text;
  bool is_match;
};

// Two neighbouring parts as one.
std::string_view Joined(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};
}

// Matches go to the part before them (or, over reversed parts, behind), each to one.
template <typename Join>
void JoinMatches(const std::vector<Part>& parts, Join join, std::vector<std::string_view>& words) {
  bool after_match = false;
  for (const Part& part : parts) {
    if (part.is_match && !after_match && !words.empty()) {
      words.back() = join(words.back(), part.text);
    } else {
      words.push_back(part.text);
    }
    after_match = part.is_match;
  }
}

std::vector<std::string_view> WordsOf(std::vector<Part> parts, SplitRule::Matches matches) {
  std::vector<std::string_view> words;
  switch (matches) {
    case SplitRule::Matches::kIsolated:
      for (const Part& part : parts) words.push_back(part.text);
      break;
    case SplitRule::Matches::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) words.push_back(part.text);
      }
      break;
    case SplitRule::Matches::kWithPrevious:
      JoinMatches(parts, Joined, words);
      break;
    case SplitRule::Matches::kWithNext:
      std::reverse(parts.begin(), parts.end());
      JoinMatches(
          parts, [](std::string_view last, std::string_view match) { return Joined(match, last); },
          words);
      std::reverse(words.begin(), words.end());
      break;
    case SplitRule::Matches::kContiguous:
      for (size_t i = 0; i < parts.size(); ++i) {
        const bool joins = i > 0 && parts[i].is_match == parts[i - 1].is_match;
        if (joins) words.back() = Joined(words.back(), parts[i].text);
        if (!joins) words.push_back(parts[i].text);
      }
      break;
  }
  return words;
}

// One call's use of the compiled stages: match data must not be shared between threads.
class Splitter {
 public:
  explicit Splitter(std::span<const Stage> stages) : stages_(stages) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_depth_limit(context_.get(), kDepthLimit);
    pcre2_set_heap_limit(context_.get(), kHeapKilobytes);
  }

  // `text` is well-formed UTF-8.
  absl::Status Split(std::string_view text, std::vector<std::string_view>& words) {
    return SplitFrom(0, text, words);
  }

 private:
  absl::Status SplitFrom(size_t index, std::string_view text,
                         std::vector<std::string_view>& words) {
    if (text.empty()) return absl::OkStatus();
    if (index == stages_.size()) {
      words.push_back(text);
      return absl::OkStatus();
    }
    PACELINE_ASSIGN_OR_RETURN(std::vector<Part> parts, PartsOf(index, text));
    for (const std::string_view word : WordsOf(std::move(parts), stages_[index].matches)) {
      PACELINE_RETURN_IF_ERROR(SplitFrom(index + 1, word, words));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Part>> PartsOf(size_t index, std::string_view text) {
    const bool invert = stages_[index].invert;
    std::vector<Part> parts;
    for (size_t done = 0; done < text.size();) {
      PACELINE_ASSIGN_OR_RETURN(const Range match, Match(index, text, done));
      if (match.begin > done) parts.push_back({text.substr(done, match.begin - done), invert});
      if (match.end > match.begin) {
        parts.push_back({text.substr(match.begin, match.end - match.begin), !invert});
      }
      done = match.end;
    }
    return parts;
  }

  struct Range {
    size_t begin, end;
  };

  // The first match at or after `from`; the empty range at the end of the text if there is none.
  absl::StatusOr<Range> Match(size_t stage, std::string_view text, size_t from) {
    int rc = Run(stage, text, from, PCRE2_NO_UTF_CHECK);
    // The interpreter keeps its state on the heap and has no such limit.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = Run(stage, text, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return Range{text.size(), text.size()};
    if (rc < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("text: the pre-tokenizer stopped at byte ", from, ": ", PcreMessage(rc)));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_.get());
    return Range{offsets[0], offsets[1]};
  }

  int Run(size_t stage, std::string_view text, size_t from, uint32_t options) {
    return pcre2_match(stages_[stage].code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                       text.size(), from, options, data_.get(), context_.get());
  }

  std::span<const Stage> stages_;
  MatchData data_{pcre2_match_data_create(1, nullptr)};
  MatchContext context_{pcre2_match_context_create(nullptr)};
};

}  // namespace

struct PreTokenizer::State {
  std::vector<Stage> stages;
};

PreTokenizer::PreTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<std::vector<SplitRule>> NamedSplits(std::string_view name) {
  std::string known;
  for (const PatternSet& set : kPatternSets) {
    if (set.name != name) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(set.name));
      continue;
    }
    std::vector<SplitRule> rules;
    for (const char* pattern : set.stages) {
      if (pattern != nullptr) rules.push_back({.pattern = pattern});
    }
    return rules;
  }
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.pre: expected one of ", known, "; got '", std::string(name), "'"));
}

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<SplitRule>& rules) {
  auto state = std::make_unique<State>();
  for (const SplitRule& rule : rules) {
    PACELINE_ASSIGN_OR_RETURN(Code code, Compile(rule));
    state->stages.push_back({std::move(code), rule.matches, rule.invert});
  }
  return PreTokenizer(std::move(state));
}

absl::Status PreTokenizer::Split(std::string_view text,
                                 std::vector<std::string_view>& words) const {
  Splitter splitter(state_->stages);
  for (size_t begin = 0; begin < text.size();) {
    bool well_formed = true;
    const size_t end = EndOfRun(text, begin, well_formed);
    const std::string_view run = text.substr(begin, end - begin);
    if (well_formed) {
      PACELINE_RETURN_IF_ERROR(splitter.Split(run, words));
    } else {
      words.push_back(run);
    }
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace paceline::internal
