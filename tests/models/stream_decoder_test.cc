#include <gmock/gmock.h>

#include <random>
#include <string>
#include <vector>

#include "models/tokenizer.h"

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

}  // namespace
}  // namespace paceline
