// tokenizer.json and what stands beside it in a folder, against golden ids; damaged files.
#include "models/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/models/tokenizer_cases.h"
#include "tests/support/model_folder.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Specials = Tokenizer::Specials;
using nlohmann::json;

absl::StatusOr<TokenizerSpec> Parse(const std::string& text) {
  return TokenizerFromJson({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                           "tokenizer.json");
}

TokenizerSpec SpecOf(const json& file) {
  auto spec = Parse(file.dump());
  if (!spec.ok()) throw std::runtime_error(spec.status().ToString());
  return *std::move(spec);
}

TEST(TokenizerJsonTest, AgreesWithTinyGoldens) {
  const auto golden = ReadJson("tiny_tokenizer.json");
  const auto tokenizer = Make(SpecOfModel(DataPath("models/llama")));
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
  EXPECT_THAT(tokenizer->end_ids(), ElementsAre(2, 4));
}

TEST(TokenizerJsonTest, AgreesWithTheGoldensOfEveryVariant) {
  const json variants = ReadJson("tiny_tokenizer_variants.json")["variants"];
  ASSERT_EQ(variants.size(), 8);
  for (const auto& [name, variant] : variants.items()) {
    const auto tokenizer = Make(SpecOf(ReadJson(variant["file"].get<std::string>())));
    for (const auto& c : variant["cases"]) {
      SCOPED_TRACE(name + " " + c["text"].dump());
      const auto ids = tokenizer->Encode(c["text"].get<std::string>(), Specials::kParse);
      ASSERT_THAT(ids, IsOk());
      Ids want = c["ids"].get<Ids>();
      // The reference puts a second begin token in front of a text that has one.
      if (name == "add-bos" && want.size() > 1 && want[1] == 1) want.erase(want.begin());
      EXPECT_EQ(tokenizer->AddBos(*ids), want);
      if (name != "add-bos") EXPECT_EQ(tokenizer->Decode(*ids, true), c["decoded"]);
    }
  }
}

// Tokens of characters, with a fallback to bytes and U+2581 for spaces, as Llama 2 has them.
json CharacterFile() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    vocabulary[text] = 3 + byte;
  }
  int id = 259;
  for (const char* text : {"a", "b", "c", "▁", "▁a", "ab", "▁ab", "bc"}) vocabulary[text] = id++;
  const auto special = [](int of, const char* text) {
    return json{{"id", of}, {"content", text}, {"special", true}, {"normalized", false}};
  };
  return {{"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "▁"}},
              {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"vocab", vocabulary},
            {"merges", {"▁ a", "a b", "▁a b", "b c"}}}}};
}

TEST(TokenizerJsonTest, CharactersMergeAndFallBackToBytes) {
  const auto tokenizer = Make(SpecOf(CharacterFile()));
  EXPECT_THAT(tokenizer->Encode("ab", Specials::kParse), IsOkAndHolds(Ids{265}));  // ▁ab
  EXPECT_THAT(tokenizer->Encode("a bc", Specials::kParse), IsOkAndHolds(Ids{263, 262, 266}));
  EXPECT_THAT(tokenizer->Encode("é", Specials::kParse), IsOkAndHolds(Ids{262, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_THAT(tokenizer->Encode("<s>a", Specials::kParse), IsOkAndHolds(Ids{1, 263}));
  EXPECT_EQ(tokenizer->AddBos({263}), (Ids{1, 263}));
  for (const std::string text : {"ab", " ab", "  x é", "a b c", "日本"}) {
    EXPECT_EQ(tokenizer->Decode(*tokenizer->Encode(text, Specials::kPlainText)), text);
  }
  EXPECT_TRUE(tokenizer->CanSpell("é"));
}

// BR-44: pieces of a stream joined are the whole text; only its first space is dropped.
TEST(TokenizerJsonTest, Br44StreamsDropTheFirstSpaceOnce) {
  const auto tokenizer = Make(SpecOf(CharacterFile()));
  const Ids ids = {263, 265, 262, 263};  // ▁a ▁ab ▁ ▁a
  StreamDecoder decoder(/*drop_first_space=*/true);
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(decoder.Push(tokenizer->Piece(id)));
  EXPECT_THAT(pieces, ElementsAre("a", " ab", " ", " a"));
  EXPECT_EQ(tokenizer->Decode(ids), "a ab  a");
}

TEST(TokenizerJsonTest, OptionsOfAddedTokensAreHonoured) {
  json file = ReadJson("tokenizers/gpt2-pattern.json");
  const auto add = [&](int id, const char* text, const char* option) {
    file["added_tokens"].push_back(
        {{"id", id}, {"content", text}, {"normalized", false}, {"special", false}, {option, true}});
  };
  add(320, "[left]", "lstrip");
  add(321, "[right]", "rstrip");
  add(322, "word", "single_word");
  const auto tokenizer = Make(SpecOf(file));
  const auto encode = [&](const char* text) {
    return *tokenizer->Encode(text, Specials::kPlainText);
  };
  EXPECT_EQ(encode("a \n[left] a"), (Ids{encode("a")[0], 320, encode(" a")[0]}));
  EXPECT_EQ(encode("a[right]\t a"), (Ids{encode("a")[0], 321, encode("a")[0]}));
  EXPECT_EQ(encode("word"), Ids{322});
  EXPECT_NE(encode("words"), (Ids{322, encode("s")[0]}));
  EXPECT_EQ(encode("(word)"), (Ids{encode("(")[0], 322, encode(")")[0]}));
}

TEST(TokenizerJsonTest, MergesMayBeTextsOrPairs) {
  json file = ReadJson("tokenizers/br40-merge-order.json");
  const TokenizerSpec pairs = SpecOf(file);
  file["model"]["merges"] = {"b c", "a b"};
  EXPECT_EQ(SpecOf(file).merges, pairs.merges);
}

TEST(TokenizerJsonTest, BehavioursOfSplits) {
  const auto ids = [](const char* behaviour, bool invert) {
    json file = ReadJson("tokenizers/br40-merge-order.json");
    file["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"},
           {"pattern", {{"String", "b"}}},
           {"behavior", behaviour},
           {"invert", invert}},
          {{"type", "ByteLevel"}, {"use_regex", false}, {"add_prefix_space", false}}}}};
    return *Make(SpecOf(file))->Encode("abbc", Specials::kPlainText);
  };
  // a = 0, b = 1, c = 2, ab = 3, bc = 4.
  EXPECT_EQ(ids("Isolated", false), (Ids{0, 1, 1, 2}));
  EXPECT_EQ(ids("Removed", false), (Ids{0, 2}));
  EXPECT_EQ(ids("Removed", true), (Ids{1, 1}));
  EXPECT_EQ(ids("MergedWithPrevious", false), (Ids{3, 1, 2}));
  EXPECT_EQ(ids("MergedWithNext", false), (Ids{0, 1, 4}));
  EXPECT_EQ(ids("Contiguous", false), (Ids{0, 1, 1, 2}));
}

struct Fault {
  std::function<void(json&)> make;
  const char* part;
};

TEST(TokenizerJsonTest, FaultsAreNamed) {
  const Fault kFaults[] = {
      {[](json& f) { f = json::array(); }, "expected a JSON object"},
      {[](json& f) { f["model"]["type"] = "Unigram"; }, "model: type: 'Unigram' is not supported"},
      {[](json& f) { f["model"]["type"] = "WordPiece"; }, "'WordPiece'"},
      {[](json& f) { f["model"].erase("vocab"); }, "model: vocab"},
      {[](json& f) { f["model"]["vocab"]["a"] = -1; }, "model.vocab: token 'a'"},
      {[](json& f) { f["model"]["vocab"]["a"] = 1; }, "model.vocab"},
      {[](json& f) { f["model"]["vocab"]["a"] = 4000000; }, "model.vocab: expected ids near"},
      {[](json& f) { f["model"]["vocab"]["a"] = json::object(); }, "model.vocab: token 'a'"},
      {[](json& f) { f["model"]["merges"] = {"ab"}; }, "merge 0"},
      {[](json& f) {
         f["model"]["merges"] = {{"a", "b", "c"}};
       },
       "merge 0"},
      {[](json& f) { f["model"]["merges"] = {7}; }, "merge 0"},
      {[](json& f) { f["model"]["dropout"] = 0.5; }, "dropout"},
      {[](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "end_of_word_suffix"},
      {[](json& f) { f["model"]["unk_token"] = "zz"; }, "unk_token"},
      {[](json& f) { f["added_tokens"] = {7}; }, "added_tokens: 0"},
      {[](json& f) {
         f["added_tokens"] = {{{"id", 0}}};
       },
       "added_tokens: 0: content"},
      {[](json& f) {
         f["added_tokens"] = {{{"id", 0}, {"content", "zz"}}};
       },
       "'zz'"},
      {[](json& f) {
         f["normalizer"] = {{"type", "Lowercase"}};
       },
       "normalizer: type: 'Lowercase'"},
      {[](json& f) {
         f["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
       },
       "pre_tokenizer: type"},
      {[](json& f) { f["pre_tokenizer"] = 5; }, "pre_tokenizer: expected an object"},
      {[](json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       },
       "decoder: type"},
      {[](json& f) {
         f["post_processor"] = {{"type", "BertProcessing"}};
       },
       "post_processor: type"},
  };
  for (const Fault& fault : kFaults) {
    json file = ReadJson("tokenizers/br40-merge-order.json");
    fault.make(file);
    const absl::Status status = Parse(file.dump()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tokenizer.json: "), HasSubstr(fault.part)));
  }
}

TEST(TokenizerJsonTest, BadPatternsAreRefused) {
  for (const char* pattern : {"(", "a*", "", "\\C"}) {
    json file = ReadJson("tokenizers/br40-merge-order.json");
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}};
    EXPECT_THAT(Tokenizer::Create(SpecOf(file)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer pattern")))
        << pattern;
  }
}

}  // namespace
}  // namespace paceline::testing
