#include "models/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>

#include "models/pre_tokenizer.h"
#include "tests/models/tokenizer_cases.h"
#include "tests/support/real_model.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Specials = Tokenizer::Specials;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::string> Words(const std::string& pre, const std::string& text) {
  std::vector<std::string_view> words;
  const auto rules = internal::NamedSplits(pre);
  EXPECT_THAT(internal::PreTokenizer::Create(*rules)->Split(text, words), IsOk());
  return {words.begin(), words.end()};
}

TEST(TokenizerTest, AgreesWithTinyGoldens) {
  const auto golden = ReadJson("tiny_tokenizer.json");
  const auto tokenizer = Make(TinySpec());
  ASSERT_EQ(golden["cases"].size(), 242);
  for (const auto& c : golden["cases"]) {
    const auto text = c["text"].get<std::string>();
    SCOPED_TRACE(c["text"].dump());
    const auto ids = c["ids"].get<Ids>();
    EXPECT_THAT(tokenizer->Encode(text, Specials::kParse), IsOkAndHolds(ids));
    EXPECT_THAT(tokenizer->Encode(text, Specials::kPlainText),
                IsOkAndHolds(c["ids_plain"].get<Ids>()));
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c["decoded"]);
    EXPECT_EQ(tokenizer->Decode(ids), c["decoded_skip_special"]);
  }
}

TEST(TokenizerTest, PiecesAgreeWithTinyGoldens) {
  const auto golden = ReadJson("tiny_tokenizer.json");
  const auto tokenizer = Make(TinySpec());
  ASSERT_EQ(tokenizer->vocab_size(), static_cast<int32_t>(golden["pieces"].size()));
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    EXPECT_EQ(tokenizer->Piece(id, /*show_control=*/true), FromHex(golden["pieces"][id])) << id;
    EXPECT_EQ(tokenizer->IsControl(id), id <= 4) << id;
    EXPECT_EQ(tokenizer->Piece(id).empty(), id <= 4) << id;
  }
  EXPECT_THAT(tokenizer->end_ids(), ElementsAre(2, 4));
}

// The goldens were recorded by a GGUF reader that does not heed `tokenizer.ggml.pre` and splits as
// GPT-2 does, although the file says "smollm" (goldens of that rule: digits-then-gpt2 below). They
// hold in full under the rule that they were recorded with.
TEST(TokenizerTest, AgreesWithSmolLm2GoldensUnderTheirSplitRule) {
  const auto path = SmolLmPath();
  if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 file: set PACELINE_MODEL";
  TokenizerSpec spec = SpecOfModel(*path);
  ASSERT_EQ(spec.pre, "smollm");
  spec.pre = "gpt-2";
  const auto tokenizer = Make(spec);
  const auto golden = ReadJson("smollm2_tokenizer.json");
  ASSERT_EQ(golden["cases"].size(), 205);
  for (const auto& c : golden["cases"]) {
    SCOPED_TRACE(c["text"].dump());
    const auto ids = c["ids"].get<Ids>();
    EXPECT_EQ(*tokenizer->Encode(c["text"].get<std::string>(), Specials::kParse), ids);
    EXPECT_EQ(c["ids_no_special"].get<Ids>(), ids);  // No begin token in either.
    EXPECT_EQ(tokenizer->AddBos(ids), ids);
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c["decoded"]);
  }
}

// White space before a digit, and a space before a number that is no digit (U+00B2), are cut in
// another place. All else agrees, and the text comes back in any case.
TEST(TokenizerTest, SmolLm2GoldensDifferFromTheFilesOwnRuleInTwelveCases) {
  const auto path = SmolLmPath();
  if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 file: set PACELINE_MODEL";
  const auto tokenizer = Make(SpecOfModel(*path));
  const auto golden = ReadJson("smollm2_tokenizer.json");
  int differing = 0;
  for (const auto& c : golden["cases"]) {
    const Ids ids = *tokenizer->Encode(c["text"].get<std::string>(), Specials::kParse);
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c["decoded"]);
    if (ids == c["ids"].get<Ids>()) continue;
    ++differing;
    EXPECT_NE(Words("smollm", c["text"]), Words("gpt-2", c["text"])) << c["text"];
  }
  EXPECT_EQ(differing, 12);
}

// BR-41 and the split rules: the tiny vocabulary under each pattern set.
TEST(TokenizerTest, SplitsAsTheNamedPatternsDo) {
  const nlohmann::json golden = ReadJson("tiny_tokenizer_variants.json")["variants"];
  for (const std::string name : {"digits-one", "digits-then-gpt2", "gpt2-pattern"}) {
    TokenizerSpec spec = TinySpec();
    spec.pre = golden[name]["ggml_pre"];
    spec.ignore_merges = false;
    const auto tokenizer = Make(spec);
    for (const auto& c : golden[name]["cases"]) {
      SCOPED_TRACE(name + " " + c["text"].dump());
      const auto ids = c["ids"].get<Ids>();
      EXPECT_THAT(tokenizer->Encode(c["text"].get<std::string>(), Specials::kParse),
                  IsOkAndHolds(ids));
      EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c["decoded"]);
    }
  }
}

TEST(TokenizerTest, Br41DigitsAreGroupedAsThePatternsSay) {
  EXPECT_THAT(Words("llama-bpe", "3333+777"), ElementsAre("333", "3", "+", "777"));
  EXPECT_THAT(Words("llama3", "3333+777"), ElementsAre("333", "3", "+", "777"));
  EXPECT_THAT(Words("gpt-2", "3333+777"), ElementsAre("3333", "+", "777"));
  EXPECT_THAT(Words("smollm", "33+7"), ElementsAre("3", "3", "+", "7"));
  EXPECT_THAT(Words("qwen2", "33+7"), ElementsAre("3", "3", "+", "7"));
}

// The golden vocabulary has six ids and lacks most bytes; they are left out there.
TEST(TokenizerTest, Br40IgnoreMergesIsHonoured) {
  const nlohmann::json golden = ReadJson("tiny_tokenizer_variants.json")["variants"];
  for (const std::string name : {"br40-ignore-merges", "br40-merge-order"}) {
    TokenizerSpec spec;
    spec.model = "gpt2";
    spec.pre = "gpt-2";
    for (const std::string token : {"a", "b", "c", "ab", "bc", "abc"}) AddToken(spec, token);
    spec.merges = {{"b", "c"}, {"a", "b"}};
    spec.ignore_merges = name == "br40-ignore-merges";
    const auto tokenizer = Make(spec);
    for (const auto& c : golden[name]["cases"]) {
      EXPECT_THAT(tokenizer->Encode(c["text"].get<std::string>(), Specials::kParse),
                  IsOkAndHolds(c["ids"].get<Ids>()))
          << name << " " << c["text"];
    }
  }
}

TEST(TokenizerTest, Br42LongestAddedTokenWins) {
  TokenizerSpec spec = ByteSpec();
  const int32_t a = AddToken(spec, "<a>", Kind::kUserDefined);
  const int32_t ab = AddToken(spec, "<a><b>", Kind::kUserDefined);
  const auto tokenizer = Make(spec);
  for (Specials specials : {Specials::kParse, Specials::kPlainText}) {
    EXPECT_THAT(tokenizer->Encode("<a><b>", specials), IsOkAndHolds(Ids{ab}));
    EXPECT_THAT(tokenizer->Encode("<a>x", specials), IsOkAndHolds(Ids{a, 'x'}));
    EXPECT_THAT(tokenizer->Encode("x<a><b><a>", specials), IsOkAndHolds(Ids{'x', ab, a}));
  }
}

TEST(TokenizerTest, ControlTokensMatchOnlyWhereAskedFor) {
  TokenizerSpec spec = ByteSpec();
  spec.ignore_merges = true;
  const int32_t stop = AddToken(spec, "stop", Kind::kControl);
  const auto tokenizer = Make(spec);
  EXPECT_THAT(tokenizer->Encode("stop", Specials::kParse), IsOkAndHolds(Ids{stop}));
  EXPECT_THAT(tokenizer->Encode("stop", Specials::kPlainText),
              IsOkAndHolds(Ids{'s', 't', 'o', 'p'}));
}

TEST(TokenizerTest, IllFormedBytesAreEncodedByteByByte) {
  const auto tokenizer = Make(ByteSpec());
  EXPECT_THAT(tokenizer->Encode("a\xFF\xE6\x97 b\xF0\x9F", Specials::kPlainText),
              IsOkAndHolds(Ids{'a', 0xFF, 0xE6, 0x97, ' ', 'b', 0xF0, 0x9F}));
}

TEST(TokenizerTest, BytesWithoutATokenBecomeTheUnknownTokenOrNothing) {
  TokenizerSpec spec = ByteSpec();
  spec.tokens[0x04] = "unreachable\xC3\x97";
  EXPECT_THAT(Make(spec)->Encode("a\x04z", Specials::kPlainText), IsOkAndHolds(Ids{'a', 'z'}));
  EXPECT_FALSE(Make(spec)->CanSpell("a\x04z"));
  EXPECT_TRUE(Make(spec)->CanSpell("az"));
  spec.unknown_id = AddToken(spec, "<unk>", Kind::kUnknown);
  EXPECT_THAT(Make(spec)->Encode("a\x04z", Specials::kPlainText), IsOkAndHolds(Ids{'a', 256, 'z'}));
  spec.kinds[256] = Kind::kControl;
  EXPECT_THAT(Make(spec)->Encode("a\x04z", Specials::kPlainText), IsOkAndHolds(Ids{'a', 'z'}));
}

TEST(TokenizerTest, Br46IdsWithoutATokenHaveNoText) {
  TokenizerSpec spec = ByteSpec();
  const int32_t unused = AddToken(spec, "[PAD]", Kind::kUnused);
  const auto tokenizer = Make(spec);
  for (int32_t id : {-1, unused, unused + 1, 1 << 30}) {
    EXPECT_EQ(tokenizer->Piece(id, /*show_control=*/true), "") << id;
    EXPECT_FALSE(tokenizer->IsControl(id));
  }
  EXPECT_EQ(tokenizer->Decode(Ids{'a', unused, 300, -5, 'b'}), "ab");
}

TEST(TokenizerTest, Br47PlainPromptsBeginWithExactlyOneBeginToken) {
  TokenizerSpec spec = TinySpec();
  spec.add_bos = true;
  const auto tokenizer = Make(spec);
  const auto golden = ReadJson("tiny_tokenizer_variants.json");
  for (const auto& c : golden["variants"]["add-bos"]["cases"]) {
    const auto text = c["text"].get<std::string>();
    auto want = c["ids"].get<Ids>();
    // The reference puts a second one in front of a text that has one.
    if (want.size() > 1 && want[1] == 1) want.erase(want.begin());
    EXPECT_EQ(tokenizer->AddBos(*tokenizer->Encode(text, Specials::kParse)), want) << text;
  }
  EXPECT_EQ(tokenizer->AddBos({}), Ids{1});
  EXPECT_EQ(tokenizer->AddBos({1, 104}), (Ids{1, 104}));
  EXPECT_EQ(Make(TinySpec())->AddBos({104}), Ids{104});
}

TEST(TokenizerTest, MergesALongWordInGoodTime) {
  TokenizerSpec spec = ByteSpec();
  std::string token = "a";
  for (int i = 0; i < 4; ++i) {
    spec.merges.emplace_back(token, token);
    AddToken(spec, token += token);
  }
  const auto tokenizer = Make(spec);
  const std::string text((1 << 20) + 3, 'a');
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer->Encode(text, Specials::kPlainText);
  ASSERT_THAT(ids, IsOk());
  EXPECT_EQ(ids->size(), (1 << 16) + 2);
  EXPECT_EQ(tokenizer->Decode(*ids), text);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(TokenizerTest, LongRunsOfOneKindStayWithinTheMatchLimit) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const auto tokenizer = Make(ByteSpec(pre));
    for (char byte : {' ', '\n', 'a', '7', '!', '\''}) {
      const std::string text(1 << 20, byte);
      const auto ids = tokenizer->Encode(text, Specials::kPlainText);
      ASSERT_THAT(ids, IsOk()) << pre << " " << byte;
      EXPECT_EQ(ids->size(), text.size());
    }
  }
}

TEST(TokenizerTest, DecodeOfEncodeIsTheText) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    TokenizerSpec spec = TinySpec();
    spec.pre = pre;
    const auto tokenizer = Make(spec);
    for (uint32_t seed = 0; seed < 1000; ++seed) {
      std::mt19937 random(seed);
      const std::string text = RandomText(random);
      const auto ids = tokenizer->Encode(text, Specials::kPlainText);
      ASSERT_THAT(ids, IsOk()) << pre << ", seed " << seed;
      ASSERT_EQ(tokenizer->Decode(*ids), text) << pre << ", seed " << seed;
    }
  }
}

TEST(TokenizerTest, EndIdsHaveNoDuplicates) {
  TokenizerSpec spec = ByteSpec();
  EXPECT_THAT(Make(spec)->end_ids(), ElementsAre());
  spec.eos_id = spec.eot_id = 7;
  EXPECT_THAT(Make(spec)->end_ids(), ElementsAre(7));
  spec.eot_id = 9;
  EXPECT_THAT(Make(spec)->end_ids(), ElementsAre(7, 9));
}

struct BadSpec {
  void (*change)(TokenizerSpec&);
  absl::StatusCode code;
  const char* message;
};

TEST(TokenizerTest, RefusesSpecsThatContradictThemselves) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  const BadSpec kCases[] = {
      {[](auto& spec) { spec.model = "t5"; }, kUnimplemented, "got 't5' (Unigram)"},
      {[](auto& spec) { spec.model = "bert"; }, kUnimplemented, "'bert'"},
      {[](auto& spec) { spec.pre = "odd"; }, kUnimplemented, "'odd'"},
      {[](auto& spec) { spec.pre = "default"; }, kUnimplemented, "'default'"},
      {[](auto& spec) { spec.tokens = {}; }, kInvalid, "tokens"},
      {[](auto& spec) { spec.kinds.pop_back(); }, kInvalid, "kinds: expected 256"},
      {[](auto& spec) { spec.kinds[3] = Kind{0}; }, kInvalid, "token 3"},
      {[](auto& spec) { spec.kinds[3] = Kind{7}; }, kInvalid, "token 3"},
      {[](auto& spec) { spec.kinds[3] = Kind::kByte; }, kUnimplemented, "token 3"},
      {[](auto& spec) { spec.bos_id = 256; }, kInvalid, "bos_id"},
      {[](auto& spec) { spec.eos_id = -1; }, kInvalid, "eos_id"},
      {[](auto& spec) { spec.eot_id = 1 << 30; }, kInvalid, "eot_id"},
      {[](auto& spec) { spec.unknown_id = 256; }, kInvalid, "unknown_id"},
      {[](auto& spec) { spec.pad_id = 256; }, kInvalid, "pad_id"},
      {[](auto& spec) { spec.add_bos = true; }, kInvalid, "add_bos"},
      {[](auto& spec) {
         spec.merges = {{"a", "b"}};
       },
       kInvalid, "merge 0: expected known text tokens, got 'ab'"},
      {[](auto& spec) {
         spec.merges = {{"zz", "b"}};
       },
       kInvalid, "'zz"},
  };
  for (const BadSpec& bad : kCases) {
    TokenizerSpec spec = ByteSpec();
    bad.change(spec);
    EXPECT_THAT(Tokenizer::Create(spec), StatusIs(bad.code, HasSubstr(bad.message)));
  }
}

TEST(TokenizerTest, AMergeIsTwoTextsAndASpace) {
  EXPECT_THAT(ParseMerge("a b"), IsOkAndHolds(TokenizerSpec::Merge("a", "b")));
  for (const char* text : {"ab", "", " a", "a ", "a b c"}) {
    EXPECT_THAT(ParseMerge(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'left right'")));
  }
}

TEST(TokenizerTest, OfEqualMergesTheFirstCounts) {
  TokenizerSpec spec = ByteSpec();
  const int32_t ab = AddToken(spec, "ab");
  AddToken(spec, "bc");
  spec.merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}};
  EXPECT_THAT(Make(spec)->Encode("abc", Specials::kPlainText), IsOkAndHolds(Ids{ab, 'c'}));
}

TEST(TokenizerTest, UnknownPreTokenizerNamesTheKnownOnes) {
  EXPECT_THAT(internal::NamedSplits("odd"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("'odd'"), HasSubstr("smollm"), HasSubstr("gpt-2"),
                             HasSubstr("llama-bpe"), HasSubstr("qwen2"))));
}

}  // namespace
}  // namespace paceline::testing
