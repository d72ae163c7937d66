// Streamed text of one answer: whole characters only, nothing that may still become a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer.h"

namespace paceline {

// Fed token by token with pieces. Text that could still turn into a stop string is held back until
// that is decided. Owns the text delivered so far.
class TextStreamer {
 public:
  // `stop` strings must not be empty.
  explicit TextStreamer(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // Takes a token's bytes; returns what can be shown now. The stop string that is complete first
  // ends the text, of those that end together the longest. After it nothing more comes.
  std::string Push(std::string_view piece);

  // The answer ended without a stop string: returns what was held back, broken characters as
  // U+FFFD.
  std::string Finish();

  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // Everything shown so far.

 private:
  std::string Deliver(size_t count);

  std::vector<std::string> stop_;
  StreamDecoder decoder_;
  std::string held_;
  std::string text_;
  bool stopped_ = false;
};

}  // namespace paceline
