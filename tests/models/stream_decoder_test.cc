#include <gmock/gmock.h>

#include <random>
#include <string>
#include <vector>

#include "models/tokenizer.h"
#include "tests/models/tokenizer_cases.h"

namespace paceline {
namespace {

using ::testing::ElementsAre;

constexpr char kBroken[] = "\xEF\xBF\xBD";  // U+FFFD

// The pieces that come out for the pieces `in`, and in the end what Flush gives.
std::vector<std::string> Stream(const std::vector<std::string>& in) {
  StreamDecoder decoder;
  std::vector<std::string> out;
  for (const std::string& piece : in) out.push_back(decoder.Push(piece));
  out.push_back(decoder.Flush());
  return out;
}

// BR-43
TEST(StreamDecoderTest, HoldsAnIncompleteCharacterUntilItsRestArrives) {
  EXPECT_THAT(Stream({"\xF0\x9F", "\x98\xB8"}), ElementsAre("", "\U0001F638", ""));
}

TEST(StreamDecoderTest, GivesTheSameTextForOneBlock) {
  EXPECT_THAT(Stream({"\xF0\x9F\x98\xB8"}), ElementsAre("\U0001F638", ""));
}

TEST(StreamDecoderTest, GivesOneReplacementForABrokenEnd) {
  EXPECT_THAT(Stream({"\xF0\x9F"}), ElementsAre("", kBroken));
  EXPECT_THAT(Stream({"\xF0", "\x9F", "\x98"}), ElementsAre("", "", "", kBroken));
}

TEST(StreamDecoderTest, ReplacesAnIllFormedByteAtOnce) {
  EXPECT_THAT(Stream({"a", "\xFF", "b"}), ElementsAre("a", kBroken, "b", ""));
  EXPECT_THAT(Stream({"a\xFF"}), ElementsAre(std::string("a") + kBroken, ""));
}

TEST(StreamDecoderTest, EndsAHeldPartThatCannotGoOn) {
  EXPECT_THAT(Stream({"\xE6", "x"}), ElementsAre("", std::string(kBroken) + "x", ""));
}

TEST(StreamDecoderTest, ReplacesEachByteOfASurrogate) {
  const std::string three = std::string(kBroken) + kBroken + kBroken;
  EXPECT_THAT(Stream({"\xED\xA0\x80"}), ElementsAre(three, ""));
  EXPECT_THAT(Stream({"\xED", "\xA0", "\x80"}), ElementsAre("", "", three, ""));
  EXPECT_THAT(Stream({"\xED\xA0"}), ElementsAre("", std::string(kBroken) + kBroken));
}

TEST(StreamDecoderTest, IsEmptyAfterFlush) {
  StreamDecoder decoder;
  decoder.Push("\xE6");
  decoder.Flush();
  EXPECT_EQ(decoder.Push("\x97\xA5"), std::string(kBroken) + kBroken);
}

TEST(StreamDecoderTest, GivesTheSameTextHoweverTheBytesAreCut) {
  constexpr uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  // Leads, trails and letters, so that well-formed and broken characters are both common.
  const std::string bytes = "a\x7F\x80\x90\xA0\xBF\xC1\xC2\xDF\xE0\xE6\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (uint32_t length = random() % 12; length > 0; --length) {
      text += bytes[random() % bytes.size()];
    }
    std::vector<std::string> cut;
    for (size_t i = 0; i < text.size();) {
      cut.push_back(text.substr(i, random() % 4));
      i += cut.back().size();
    }
    std::string joined;
    for (const std::string& piece : Stream(cut)) joined += piece;
    std::string whole;
    for (const std::string& piece : Stream({text})) whole += piece;
    ASSERT_EQ(joined, whole) << "seed " << kSeed << ", round " << round;
  }
}

// What comes out of `tokens` (pieces of ids) given in blocks of `size`.
std::vector<std::string> InBlocks(const std::vector<std::string>& tokens, size_t size) {
  std::vector<std::string> blocks;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i % size == 0) blocks.emplace_back();
    blocks.back() += tokens[i];
  }
  return Stream(blocks);
}

std::string Joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(StreamDecoderTest, AgreesWithGoldensOneByOneInBlocksAndWhole) {
  const auto tokenizer = testing::Make(testing::TinySpec());
  const auto golden = testing::ReadJson("tiny_tokenizer.json");
  ASSERT_EQ(golden["streams"].size(), 35);
  for (const auto& c : golden["streams"]) {
    SCOPED_TRACE(c.dump());
    const auto ids = c["ids"].get<std::vector<int32_t>>();
    std::vector<std::string> tokens;
    for (int32_t id : ids) tokens.emplace_back(tokenizer->Piece(id, /*show_control=*/true));
    EXPECT_EQ(Stream(tokens), c["pieces"].get<std::vector<std::string>>());
    for (size_t size = 1; size <= ids.size(); ++size) {
      EXPECT_EQ(Joined(InBlocks(tokens, size)), c["whole"]) << "blocks of " << size;
    }
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c["whole"]);
  }
}

TEST(StreamDecoderTest, JoinedPiecesEqualTheDecodeOfTheWhole) {
  const auto tokenizer = testing::Make(testing::TinySpec());
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    const auto ids = testing::RandomIds(random, tokenizer->vocab_size());
    std::vector<std::string> tokens;
    for (int32_t id : ids) tokens.emplace_back(tokenizer->Piece(id));
    ASSERT_EQ(Joined(Stream(tokens)), tokenizer->Decode(ids)) << "seed " << seed;
  }
}

TEST(StreamDecoderTest, EveryWellFormedCharacterPassesByteByByte) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    testing::AppendUtf8(code_point, text);
    StreamDecoder decoder;
    std::string out;
    for (char byte : text) out += decoder.Push({&byte, 1});
    ASSERT_EQ(out + decoder.Flush(), text) << static_cast<uint32_t>(code_point);
  }
}

}  // namespace
}  // namespace paceline
