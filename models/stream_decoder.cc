#include <unicode/utf8.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "models/tokenizer.h"

namespace paceline {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Whether more bytes could make a character of `bytes`, all of which U8_NEXT rejects in one step:
// it steps over a maximal ill-formed part, so that only the length is left to ask.
bool CouldGoOn(std::string_view bytes) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  return U8_IS_LEAD(lead) && bytes.size() < 1u + U8_COUNT_TRAIL_BYTES(lead);
}

// The first two bytes of a surrogate are held like those of any character of three bytes. They end
// as one U+FFFD each all the same.
bool IsSurrogateStart(std::string_view bytes) {
  return bytes.size() == 2 && bytes[0] == '\xED' && U8_IS_TRAIL(static_cast<uint8_t>(bytes[1]));
}

// Appends the text of `bytes` to `text` and returns how many bytes were used: all, or if
// `hold_tail` all but an incomplete character at the end. Each maximal ill-formed part becomes one
// U+FFFD.
size_t AppendText(std::string_view bytes, bool hold_tail, std::string& text) {
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t i = 0; i < size;) {
    const int64_t begin = i;
    UChar32 code_point;
    U8_NEXT(bytes.data(), i, size, code_point);
    if (code_point >= 0) {
      text += bytes.substr(begin, i - begin);
      continue;
    }
    const std::string_view rest = bytes.substr(begin);
    if (hold_tail && ((i == size && CouldGoOn(rest)) || IsSurrogateStart(rest))) return begin;
    text += kReplacement;
  }
  return bytes.size();
}

}  // namespace

std::string StreamDecoder::Push(std::string_view bytes) {
  if (drop_space_ && !bytes.empty()) {
    drop_space_ = false;
    if (bytes.front() == ' ') bytes.remove_prefix(1);
  }
  tail_ += bytes;
  std::string text;
  tail_.erase(0, AppendText(tail_, /*hold_tail=*/true, text));
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text;
  AppendText(tail_, /*hold_tail=*/false, text);
  tail_.clear();
  return text;
}

}  // namespace paceline
