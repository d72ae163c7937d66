// Tokenizers that the tests of this folder share.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/byte_level.h"
#include "models/tokenizer.h"
#include "models/weight_source.h"
#include "tests/support/test_data.h"

namespace paceline::testing {

using Kind = TokenizerSpec::TokenKind;
using Ids = std::vector<int32_t>;

inline TokenizerSpec SpecOfModel(const std::string& path) {
  const auto model = OpenModel(path);
  if (!model.ok()) throw std::runtime_error(model.status().ToString());
  return (*model)->tokenizer();
}

// The spec of the 320-id tokenizer of the test models.
inline TokenizerSpec TinySpec() { return SpecOfModel(DataPath("models/llama/model-f32.gguf")); }

inline std::unique_ptr<Tokenizer> Make(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().ToString());
  return *std::move(tokenizer);
}

inline int32_t AddToken(TokenizerSpec& spec, std::string text, Kind kind = Kind::kNormal) {
  spec.tokens.push_back(std::move(text));
  spec.kinds.push_back(kind);
  return static_cast<int32_t>(spec.tokens.size()) - 1;
}

// Ids 0 to 255 are the bytes; no merges.
inline TokenizerSpec ByteSpec(std::string pre = "gpt-2") {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    AddToken(spec, std::string(internal::ByteLevelSpelling(static_cast<uint8_t>(byte))));
  }
  return spec;
}

inline void AppendUtf8(char32_t code_point, std::string& text) {
  const auto put = [&](char32_t bits) { text.push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

// Runs of letters, digits, white space, combining marks, CJK and emoji.
inline std::string RandomText(std::mt19937& random) {
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {'a', 'z'},       {'A', 'Z'},         {'0', '9'},       {0x20, 0x20},       {0x09, 0x0D},
      {0x2000, 0x200B}, {0x85, 0xA0},       {0x21, 0x2F},     {0x300, 0x36F},     {0x4E00, 0x4EFF},
      {0x3040, 0x30FF}, {0x1F300, 0x1F64F}, {0xFE00, 0xFE0F}, {0x1F1E6, 0x1F1FF}, {0x600, 0x6FF},
      {0x180E, 0x180E}, {0x10000, 0x10FFFF}};
  std::string text;
  for (int run = static_cast<int>(random() % 12); run > 0; --run) {
    const auto& [first, last] = kRanges[random() % std::size(kRanges)];
    for (int count = 1 + static_cast<int>(random() % 4); count > 0; --count) {
      AppendUtf8(first + static_cast<char32_t>(random() % (last - first + 1)), text);
    }
  }
  return text;
}

inline Ids RandomIds(std::mt19937& random, int32_t vocab_size) {
  Ids ids(random() % 40);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab_size);
  return ids;
}

}  // namespace paceline::testing
