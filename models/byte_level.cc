#include "models/byte_level.h"

#include <array>

namespace paceline::internal {
namespace {

constexpr int kAlphabetEnd = 0x100 + 68;  // 68 bytes have no printable character of their own.

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int16_t, kAlphabetEnd> byte;  // By code point; -1 outside of the alphabet.
};

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::string TwoByteUtf8(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = IsPrintable(byte) ? byte : next++;
    alphabet.spelling[byte] = TwoByteUtf8(code_point);
    alphabet.byte[code_point] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

const Alphabet& GetAlphabet() {
  static const Alphabet* const alphabet = new Alphabet(MakeAlphabet());
  return *alphabet;
}

// The code point at `text`, which is moved past it; -1 if it takes more than two bytes of UTF-8 or
// is broken.
int NextCodePoint(std::string_view& text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) {
    text.remove_prefix(1);
    return first;
  }
  if (first < 0xC2 || first > 0xDF || text.size() < 2) return -1;
  const auto second = static_cast<uint8_t>(text[1]);
  if ((second & 0xC0) != 0x80) return -1;
  text.remove_prefix(2);
  return (first & 0x1F) << 6 | (second & 0x3F);
}

}  // namespace

std::string_view ByteLevelSpelling(uint8_t byte) { return GetAlphabet().spelling[byte]; }

std::string ToByteLevel(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size());
  for (char byte : bytes) spelling += ByteLevelSpelling(static_cast<uint8_t>(byte));
  return spelling;
}

std::optional<std::string> FromByteLevel(std::string_view spelling) {
  const Alphabet& alphabet = GetAlphabet();
  std::string bytes;
  while (!spelling.empty()) {
    const int code_point = NextCodePoint(spelling);
    if (code_point < 0 || code_point >= kAlphabetEnd || alphabet.byte[code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(alphabet.byte[code_point]));
  }
  return bytes;
}

}  // namespace paceline::internal
