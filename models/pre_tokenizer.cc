#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/pre_tokenizer.h"

#include <pcre2.h>
#include <unicode/utf8.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline::internal {
namespace {

// White_Space, for use inside a class. PCRE2's own \s also holds U+180E, which left that property.
#define SPACE R"(\x09-\x0d\x{85}\p{Z})"
#define SPACES_AT_END "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LLAMA3_WITH_DIGITS(digits)                                                 \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits "| ?[^" SPACE \
  R"(\p{L}\p{N}]+[\r\n]*|[)" SPACE R"(]*[\r\n]+|)" SPACES_AT_END

constexpr const char* kSingleDigits = R"(\p{N})";
constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" SPACE R"(\p{L}\p{N}]+|)" SPACES_AT_END;
constexpr const char* kLlama3 = LLAMA3_WITH_DIGITS(R"(\p{N}{1,3})");
constexpr const char* kQwen2 = LLAMA3_WITH_DIGITS(R"(\p{N})");

struct PatternSet {
  std::string_view name;  // As `tokenizer.ggml.pre` writes it.
  const char* stages[2];  // The second may be null.
};

// "default", what a file without the key means, is left out on purpose: readers take an old set of
// four patterns for it that is right for hardly any model.
constexpr PatternSet kPatternSets[] = {
    {"gpt-2", {kGpt2, nullptr}},
    {"phi-2", {kGpt2, nullptr}},
    {"olmo", {kGpt2, nullptr}},
    {"smollm", {kSingleDigits, kGpt2}},
    {"starcoder", {kSingleDigits, kGpt2}},
    {"refact", {kSingleDigits, kGpt2}},
    {"codeshell", {kSingleDigits, kGpt2}},
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

absl::StatusOr<Code> Compile(const char* pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  if (code == nullptr) {
    return absl::InternalError(absl::StrCat("pattern ", pattern, ": ", PcreMessage(error)));
  }
  // Without a just-in-time compiler the interpreter gives the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// One call's use of the compiled stages: match data must not be shared between threads.
class Splitter {
 public:
  explicit Splitter(std::span<const Code> stages) : stages_(stages) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_depth_limit(context_.get(), kDepthLimit);
  }

  // `text` is well-formed UTF-8.
  absl::Status Split(std::string_view text, std::vector<std::string_view>& words) {
    return SplitFrom(0, text, words);
  }

 private:
  absl::Status SplitFrom(size_t stage, std::string_view text,
                         std::vector<std::string_view>& words) {
    if (text.empty()) return absl::OkStatus();
    if (stage == stages_.size()) {
      words.push_back(text);
      return absl::OkStatus();
    }
    size_t done = 0;
    while (done < text.size()) {
      PACELINE_ASSIGN_OR_RETURN(const Range match, Match(stage, text, done));
      PACELINE_RETURN_IF_ERROR(SplitFrom(stage + 1, text.substr(done, match.begin - done), words));
      PACELINE_RETURN_IF_ERROR(
          SplitFrom(stage + 1, text.substr(match.begin, match.end - match.begin), words));
      done = match.end;
    }
    return absl::OkStatus();
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
    return pcre2_match(stages_[stage].get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       from, options, data_.get(), context_.get());
  }

  std::span<const Code> stages_;
  MatchData data_{pcre2_match_data_create(1, nullptr)};
  MatchContext context_{pcre2_match_context_create(nullptr)};
};

// The end of the run that begins at `begin` and is well-formed, or ill-formed, throughout.
size_t EndOfRun(std::string_view text, size_t begin, bool& well_formed) {
  const auto length = static_cast<int64_t>(text.size());
  const auto start = static_cast<int64_t>(begin);
  for (int64_t i = start; i < length;) {
    const int64_t before = i;
    int32_t code_point;
    U8_NEXT(text.data(), i, length, code_point);
    if (before == start) {
      well_formed = code_point >= 0;
    } else if (well_formed != (code_point >= 0)) {
      return before;
    }
  }
  return text.size();
}

}  // namespace

struct PreTokenizer::State {
  std::vector<Code> stages;
};

PreTokenizer::PreTokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  std::string known;
  for (const PatternSet& set : kPatternSets) {
    if (set.name != name) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(set.name));
      continue;
    }
    auto state = std::make_unique<State>();
    for (const char* pattern : set.stages) {
      if (pattern == nullptr) continue;
      PACELINE_ASSIGN_OR_RETURN(Code code, Compile(pattern));
      state->stages.push_back(std::move(code));
    }
    return PreTokenizer(std::move(state));
  }
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.pre: expected one of ", known, "; got '", std::string(name), "'"));
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
