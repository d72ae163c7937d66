// The alphabet of byte-level BPE: each byte is written as one printable character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::internal {

// The UTF-8 spelling of `byte` in the alphabet of GPT-2: printable Latin-1 characters stand for
// themselves, the other bytes for U+0100, U+0101 and so on in byte order.
std::string_view ByteLevelSpelling(uint8_t byte);

// `bytes` spelled in the alphabet.
std::string ToByteLevel(std::string_view bytes);

// The bytes that `spelling` stands for; nullopt if it holds a character outside of the alphabet.
std::optional<std::string> FromByteLevel(std::string_view spelling);

}  // namespace paceline::internal
