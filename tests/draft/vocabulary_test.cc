#include "draft/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/byte_level.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Kind = TokenizerSpec::TokenKind;

constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

// Ids 0 to 255 are the bytes; "the" and "and" are 256 and 257, <s> and </s> 258 and 259.
TokenizerSpec Spec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "gpt-2";
  for (int32_t byte = 0; byte < 256; ++byte) {
    spec.tokens.emplace_back(internal::ByteLevelSpelling(static_cast<uint8_t>(byte)));
  }
  for (const char* piece : {"the", "and", "<s>", "</s>"}) spec.tokens.push_back(piece);
  spec.kinds.resize(258, Kind::kNormal);
  spec.kinds.resize(260, Kind::kControl);
  spec.bos_id = 258;
  spec.eos_id = 259;
  return spec;
}

absl::Status Compare(TokenizerSpec target, TokenizerSpec draft) {
  const auto ours = Tokenizer::Create(std::move(target));
  const auto theirs = Tokenizer::Create(std::move(draft));
  EXPECT_THAT(ours, IsOk());
  EXPECT_THAT(theirs, IsOk());
  return CompareVocabularies(**ours, **theirs);
}

TEST(CompareVocabulariesTest, EqualOnesAreAccepted) {
  EXPECT_THAT(Compare(Spec(), Spec()), IsOk());
}

TEST(CompareVocabulariesTest, MergesAndTemplatesMayDiffer) {
  TokenizerSpec draft = Spec();
  draft.chat_template = "{{ messages }}";
  draft.add_bos = true;
  draft.ignore_merges = true;
  EXPECT_THAT(Compare(Spec(), draft), IsOk());
}

// BR-31 (a): the first id that differs is named, with both pieces.
TEST(CompareVocabulariesTest, SwappedPiecesNameTheFirstId) {
  TokenizerSpec draft = Spec();
  std::swap(draft.tokens[256], draft.tokens[257]);
  EXPECT_THAT(Compare(Spec(), draft),
              StatusIs(kRefused, AllOf(HasSubstr("id 256 "), HasSubstr("'the' in the target"),
                                       HasSubstr("'and' in the draft"))));
}

TEST(CompareVocabulariesTest, EarlierOfTwoDifferencesIsNamed) {
  TokenizerSpec draft = Spec();
  std::swap(draft.tokens['b'], draft.tokens['c']);
  std::swap(draft.tokens[256], draft.tokens[257]);
  EXPECT_THAT(Compare(Spec(), draft), StatusIs(kRefused, HasSubstr("id 98 ")));
}

TEST(CompareVocabulariesTest, UnprintablePiecesAreEscaped) {
  TokenizerSpec draft = Spec();
  std::swap(draft.tokens[0], draft.tokens[255]);
  EXPECT_THAT(Compare(Spec(), draft), StatusIs(kRefused, HasSubstr("id 0 is '\\x00'")));
}

TEST(CompareVocabulariesTest, TextAndControlOfOnePieceDiffer) {
  TokenizerSpec draft = Spec();
  draft.kinds[257] = Kind::kControl;
  EXPECT_THAT(Compare(Spec(), draft),
              StatusIs(kRefused, AllOf(HasSubstr("id 257 'and'"), HasSubstr("text in the target"),
                                       HasSubstr("a control token in the draft"))));
}

TEST(CompareVocabulariesTest, ControlTokensCompareByTheirText) {
  TokenizerSpec draft = Spec();
  draft.tokens[258] = "<bos>";
  EXPECT_THAT(Compare(Spec(), draft),
              StatusIs(kRefused, AllOf(HasSubstr("id 258 "), HasSubstr("'<bos>'"))));
}

TEST(CompareVocabulariesTest, AnotherNumberOfTokensIsNamedInBothDirections) {
  TokenizerSpec longer = Spec();
  longer.tokens.push_back("extra");
  longer.kinds.push_back(Kind::kNormal);
  EXPECT_THAT(Compare(Spec(), longer), StatusIs(kRefused, AllOf(HasSubstr("number of tokens"),
                                                                HasSubstr("260 in the target"),
                                                                HasSubstr("261 in the draft"))));
  EXPECT_THAT(Compare(longer, Spec()), StatusIs(kRefused, HasSubstr("261 in the target")));
}

TEST(CompareVocabulariesTest, SpecialIdsMustAgree) {
  TokenizerSpec draft = Spec();
  draft.bos_id = std::nullopt;
  EXPECT_THAT(Compare(Spec(), draft),
              StatusIs(kRefused, AllOf(HasSubstr("begin token"), HasSubstr("258 in the target"),
                                       HasSubstr("none in the draft"))));
  draft = Spec();
  draft.eos_id = 258;
  EXPECT_THAT(Compare(Spec(), draft), StatusIs(kRefused, HasSubstr("the end token")));
  draft = Spec();
  draft.eot_id = 258;
  EXPECT_THAT(Compare(Spec(), draft), StatusIs(kRefused, HasSubstr("end-of-turn token")));
}

}  // namespace
}  // namespace paceline
