// Cuts text into the words that BPE merges within, by the pattern sets that model files name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paceline::internal {

// The stages of a named set run one after the other, each within the pieces of the stage before. A
// stage cuts its input into its matches and what lies between them, so no byte is lost.
//
// Character classes are those of PCRE2's Unicode tables (14.0 in release 10.42); white space is
// Unicode's White_Space. Thread-safe.
class PreTokenizer {
 public:
  // kUnimplemented, listing the known names, for a name without a pattern set.
  static absl::StatusOr<PreTokenizer> Create(std::string_view name);
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
