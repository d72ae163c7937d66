// Cuts text into the words that BPE merges within.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/tokenizer_spec.h"

namespace paceline::internal {

// The words of GPT-2.
inline constexpr const char* kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The splits that model files name. kUnimplemented, listing the known names, for another one.
absl::StatusOr<std::vector<SplitRule>> NamedSplits(std::string_view name);

// The rules run one after the other, each within the words of the one before; without any, a text
// is one word.
//
// Character classes are those of PCRE2's Unicode tables (14.0 in release 10.42); white space is
// Unicode's White_Space. Thread-safe.
class PreTokenizer {
 public:
  // kInvalidArgument naming a pattern that is none, or that could match nothing.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<SplitRule>& rules);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the words of `text` (any bytes) to `words`, which then point into `text`. A maximal run
  // of ill-formed UTF-8 is one word; the patterns see the stretches between such runs one by one.
  // kInvalidArgument if a pattern's match limit is reached (see kMatchLimit in the source).
  absl::Status Split(std::string_view text, std::vector<std::string_view>& words) const;

 private:
  struct State;
  explicit PreTokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace paceline::internal
