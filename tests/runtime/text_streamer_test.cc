#include "runtime/text_streamer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace paceline {
namespace {

using ::testing::ElementsAre;

struct Streamed {
  std::vector<std::string> deliveries;  // One a piece, and that of Finish.
  std::string text;
  bool stopped = false;
};

// Pushes all pieces, those behind a stop too, and checks that deliveries and text() agree.
Streamed Stream(const std::vector<std::string>& pieces, std::vector<std::string> stop) {
  TextStreamer streamer(std::move(stop));
  Streamed streamed;
  std::string joined;
  for (const std::string& piece : pieces) {
    const bool over = streamer.stopped();
    streamed.deliveries.push_back(streamer.Push(piece));
    joined += streamed.deliveries.back();
    EXPECT_EQ(streamer.text(), joined);
    if (over) {
      EXPECT_EQ(streamed.deliveries.back(), "");
    }
  }
  streamed.deliveries.push_back(streamer.Finish());
  joined += streamed.deliveries.back();
  streamed.text = streamer.text();
  streamed.stopped = streamer.stopped();
  EXPECT_EQ(streamed.text, joined);
  return streamed;
}

// `text` in random pieces, empty ones included, cut anywhere.
std::vector<std::string> Cut(const std::string& text, std::mt19937& random) {
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t length = random() % 4;
    pieces.push_back(text.substr(at, length));
    at += pieces.back().size();
  }
  return pieces;
}

// The text before the stop string that is complete first; of those that end there the longest.
std::string NaiveCut(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 0; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (end < stop.size() || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

// BR-43.
TEST(TextStreamerTest, HoldsBackHalfACharacter) {
  EXPECT_THAT(Stream({"\xF0\x9F", "\x98\xB8"}, {}).deliveries,
              ElementsAre("", "\xF0\x9F\x98\xB8", ""));
  EXPECT_THAT(Stream({"\xF0\x9F\x98\xB8"}, {}).deliveries, ElementsAre("\xF0\x9F\x98\xB8", ""));
  EXPECT_THAT(Stream({"\xF0\x9F"}, {}).deliveries, ElementsAre("", "\xEF\xBF\xBD"));
  EXPECT_THAT(Stream({"a", "\xFF", "b"}, {}).deliveries, ElementsAre("a", "\xEF\xBF\xBD", "b", ""));
}

// BR-45.
TEST(TextStreamerTest, HoldsBackWhatCouldBecomeAStop) {
  const Streamed stopped = Stream({"DEF", "G", "HI", "J"}, {"DEFGHIJ"});
  EXPECT_THAT(stopped.deliveries, ElementsAre("", "", "", "", ""));
  EXPECT_TRUE(stopped.stopped);
  const Streamed ruled_out = Stream({"DEF", "G", "HI", "K"}, {"DEFGHIJ"});
  EXPECT_THAT(ruled_out.deliveries, ElementsAre("", "", "", "DEFGHIK", ""));
  EXPECT_FALSE(ruled_out.stopped);
  EXPECT_THAT(Stream({"DEF", "G", "HI"}, {"DEFGHIJ"}).deliveries,
              ElementsAre("", "", "", "DEFGHI"));
}

// BR-21.
TEST(TextStreamerTest, FindsAStopAcrossPieces) {
  std::vector<std::string> pieces = {"a", "EN", "D"};
  pieces.resize(16, "b");
  EXPECT_EQ(Stream(pieces, {"END"}).text, "a");
  EXPECT_TRUE(Stream(pieces, {"END"}).stopped);
  EXPECT_THAT(Stream({"xE", "N", "D", "b"}, {"END"}).deliveries, ElementsAre("x", "", "", "", ""));
}

TEST(TextStreamerTest, CutsAStopInsideAPiece) {
  const Streamed streamed = Stream({"ab", "cENDd", "e"}, {"END"});
  EXPECT_THAT(streamed.deliveries, ElementsAre("ab", "c", "", ""));
  EXPECT_TRUE(streamed.stopped);
}

TEST(TextStreamerTest, RestartsAPartialStopWithinItself) {
  EXPECT_EQ(Stream({"a", "a", "a", "b"}, {"aab"}).text, "a");
  EXPECT_EQ(Stream({"EN", "END"}, {"END"}).text, "EN");
  EXPECT_EQ(Stream({"abab", "abac"}, {"ababac"}).text, "ab");
}

TEST(TextStreamerTest, TheStopThatIsCompleteFirstWins) {
  EXPECT_EQ(Stream({"xabcd"}, {"abcd", "bc"}).text, "xa");
  EXPECT_EQ(Stream({"xab", "cd"}, {"abcd", "bc"}).text, "xa");
  EXPECT_EQ(Stream({"xabc"}, {"c", "abc"}).text, "x");
  EXPECT_EQ(Stream({"xbcd"}, {"d", "b"}).text, "x");
}

TEST(TextStreamerTest, StopsOfWholeCharacters) {
  const std::string text =
      "gr\xC3\xBC\xC3\x9F"
      "e \xE2\x9C\x93 mehr";
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Streamed streamed = Stream(Cut(text, random), {"\xE2\x9C\x93"});
    EXPECT_EQ(streamed.text,
              "gr\xC3\xBC\xC3\x9F"
              "e ")
        << "seed " << seed;
    EXPECT_TRUE(streamed.stopped);
  }
  // The same lead byte is no beginning of the stop.
  EXPECT_EQ(Stream({"\xE2\x9C", "\x94"}, {"\xE2\x9C\x93"}).text, "\xE2\x9C\x94");
}

TEST(TextStreamerTest, AnUnfinishedCharacterIsNotLostBehindAHeldPart) {
  EXPECT_EQ(Stream({"EN\xF0\x9F"}, {"END"}).text, "EN\xEF\xBF\xBD");
  EXPECT_EQ(Stream({"EN", "\xF0\x9F\x98\xB8"}, {"END"}).text, "EN\xF0\x9F\x98\xB8");
}

// BR-44: joined pieces equal the whole.
TEST(TextStreamerTest, AnyCuttingGivesTheSameText) {
  const std::vector<std::string> alphabet = {
      "a", "b", "c", "\xC3\xA9", "\xE2\x9C\x93", "\xF0\x9F\x98\xB8"};
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto word = [&](size_t length) {
      std::string text;
      while (length-- > 0) text += alphabet[random() % alphabet.size()];
      return text;
    };
    const std::string text = word(random() % 20);
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = word(1 + random() % 4);
    const std::string want = NaiveCut(text, stops);
    for (int32_t cutting = 0; cutting < 3; ++cutting) {
      const Streamed streamed = Stream(Cut(text, random), stops);
      ASSERT_EQ(streamed.text, want) << "seed " << seed;
      ASSERT_EQ(streamed.stopped, want != text) << "seed " << seed;
    }
  }
}

TEST(TextStreamerTest, AnyCuttingOfBrokenBytesGivesTheSameText) {
  const std::string bytes = "ab\xC3\xA9\xE2\x9C\xF0\x9F\x98\xFF";
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    std::string text;
    for (size_t length = random() % 12; length > 0; --length)
      text += bytes[random() % bytes.size()];
    const std::string whole = Stream({text}, {"ab"}).text;
    ASSERT_EQ(Stream(Cut(text, random), {"ab"}).text, whole) << "seed " << seed;
  }
}

}  // namespace
}  // namespace paceline
