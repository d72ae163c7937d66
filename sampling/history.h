// The tokens before a row: committed ones and the drafted ancestors of the row.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace paceline {

// How often each token occurs in a sequence's committed tokens. Grows with every commit, so that a
// row's penalties need not walk the whole history.
class TokenCounts {
 public:
  void AddPrompt(std::span<const int32_t> tokens);
  void AddOutput(std::span<const int32_t> tokens);

  const std::unordered_map<int32_t, int32_t>& prompt() const { return prompt_; }
  const std::unordered_map<int32_t, int32_t>& output() const { return output_; }

  bool operator==(const TokenCounts&) const = default;

 private:
  std::unordered_map<int32_t, int32_t> prompt_;
  std::unordered_map<int32_t, int32_t> output_;
};

// A view; owns nothing. Drafted ancestors count as output (algorithms B.1).
struct HistoryView {
  std::span<const int32_t> committed;   // prompt, then output
  int32_t prompt_length = 0;            // how many of `committed` are the prompt
  std::span<const int32_t> drafted;     // this row's drafted ancestors, in order
  const TokenCounts* counts = nullptr;  // of `committed`; must be set if a penalty is on

  int64_t size() const { return static_cast<int64_t>(committed.size() + drafted.size()); }
  int64_t output_length() const { return size() - prompt_length; }
  // The i-th token of committed and drafted together.
  int32_t At(int64_t i) const {
    const int64_t split = static_cast<int64_t>(committed.size());
    return i < split ? committed[i] : drafted[i - split];
  }
};

}  // namespace paceline
