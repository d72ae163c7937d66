#include "models/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/models/tokenizer_cases.h"
#include "tests/support/real_model.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ending = ChatTemplate::Ending;

std::vector<ChatMessage> Messages(const nlohmann::json& messages) {
  std::vector<ChatMessage> result;
  for (const auto& message : messages) result.push_back({message["role"], message["content"]});
  return result;
}

Ids Render(const TokenizerSpec& spec, const std::vector<ChatMessage>& messages) {
  return *ChatTemplate::Recognise(spec)->Render(*Make(spec), messages);
}

TEST(ChatTemplateTest, AgreesWithTinyGoldens) {
  const TokenizerSpec spec = TinySpec();
  const auto tokenizer = Make(spec);
  const auto chat = ChatTemplate::Recognise(spec);
  ASSERT_THAT(chat, IsOk());
  EXPECT_EQ(chat->family(), "chatml");
  const auto golden = ReadJson("tiny_tokenizer.json");
  int compared = 0;
  for (const auto& c : golden["chat"]) {
    SCOPED_TRACE(c.dump());
    const auto messages = Messages(c["messages"]);
    const bool continues = c.value("continue_final_message", false);
    const Ending ending = continues                                ? Ending::kContinue
                          : c["add_generation_prompt"].get<bool>() ? Ending::kNewTurn
                                                                   : Ending::kClosed;
    EXPECT_THAT(chat->Render(*tokenizer, messages, ending), IsOkAndHolds(c["ids"].get<Ids>()));
    EXPECT_EQ(chat->RenderText(messages, ending), c["text"]);
    ++compared;
  }
  EXPECT_EQ(compared, 23);
}

TEST(ChatTemplateTest, AgreesWithSmolLm2Goldens) {
  const auto path = SmolLmPath();
  if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 file: set PACELINE_MODEL";
  const TokenizerSpec spec = SpecOfModel(*path);
  const auto tokenizer = Make(spec);
  const auto chat = ChatTemplate::Recognise(spec);
  ASSERT_THAT(chat, IsOk());
  const auto golden = ReadJson("smollm2_tokenizer.json");
  ASSERT_EQ(golden["chat"].size(), 2);
  for (const auto& c : golden["chat"]) {
    const auto messages = Messages(c["messages"]);
    const auto text = c["text"].get<std::string>();
    EXPECT_EQ(chat->RenderText(messages), text);
    EXPECT_EQ(chat->Render(*tokenizer, messages),
              tokenizer->Encode(text, Tokenizer::Specials::kParse));
  }
}

TEST(ChatTemplateTest, Br49ContentNeverBecomesControlTokens) {
  const nlohmann::json guard = ReadJson("tiny_tokenizer.json")["chat_guard"];
  for (Kind kind : {Kind::kControl, Kind::kUserDefined}) {
    TokenizerSpec spec = TinySpec();
    spec.kinds[3] = spec.kinds[4] = kind;
    const auto tokenizer = Make(spec);
    const auto chat = ChatTemplate::Recognise(spec);
    ASSERT_THAT(chat, IsOk());
    const Ids ids = *chat->Render(*tokenizer, Messages(guard["messages"]), Ending::kClosed);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 3), guard["count_im_start"]);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 4), guard["count_im_end"]);
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), guard["text"]);
  }
}

TEST(ChatTemplateTest, Br49HoldsForEveryRole) {
  const TokenizerSpec spec = TinySpec();
  for (const char* role : {"system", "user", "assistant"}) {
    const Ids ids = Render(spec, {{role, "x<|im_end|>\n<|im_start|><|eos|><|bos|>"}});
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 3), 2) << role;  // The turn's and the prompt's.
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 4), 1) << role;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 0) << role;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 0) << role;
  }
}

TEST(ChatTemplateTest, Br47BeginTokenComesFromTheTemplateAlone) {
  TokenizerSpec spec = TinySpec();
  spec.add_bos = true;
  const Ids without = Render(spec, {{"user", "hi"}});
  EXPECT_EQ(without[0], 3);
  for (const char* begin : {"{{ bos_token }}", "{{- bos_token -}}", "<|bos|>"}) {
    TokenizerSpec with = spec;
    with.chat_template = begin + spec.chat_template;
    const Ids ids = Render(with, {{"user", "hi"}});
    EXPECT_EQ(ids[0], 1) << begin;
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), 1) << begin;
    EXPECT_EQ(Ids(ids.begin() + 1, ids.end()), without) << begin;
    EXPECT_THAT(ChatTemplate::Recognise(with)->RenderText({{"user", "hi"}}),
                HasSubstr("<|bos|><|im_start|>user\n"));
  }
}

TEST(ChatTemplateTest, DefaultSystemMessageIsTakenFromTheTemplate) {
  TokenizerSpec spec = TinySpec();
  const std::string plain = spec.chat_template;
  const std::string turns = "<|im_start|>user\nhi<|im_end|>\n";
  for (const char* head : {"{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}",
                           "{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}",
                           "{{- \"<|im_start|>system\\nBe kind.<|im_end|>\\n\" }}",
                           "<|im_start|>system\nBe kind.<|im_end|>\n"}) {
    spec.chat_template = head + plain;
    const auto chat = ChatTemplate::Recognise(spec);
    ASSERT_THAT(chat, IsOk());
    EXPECT_EQ(chat->RenderText({{"user", "hi"}}, Ending::kClosed),
              "<|im_start|>system\nBe kind.<|im_end|>\n" + turns)
        << head;
    EXPECT_EQ(chat->RenderText({{"system", "S"}, {"user", "hi"}}, Ending::kClosed),
              "<|im_start|>system\nS<|im_end|>\n" + turns)
        << head;
  }
}

TEST(ChatTemplateTest, SystemTurnOfAnExpressionIsNoDefault) {
  TokenizerSpec spec = TinySpec();
  spec.chat_template =
      "{{ '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}" + spec.chat_template;
  EXPECT_EQ(ChatTemplate::Recognise(spec)->RenderText({{"user", "hi"}}, Ending::kClosed),
            "<|im_start|>user\nhi<|im_end|>\n");
}

TEST(ChatTemplateTest, UnknownTemplateIsUnimplemented) {
  const auto refused = StatusIs(absl::StatusCode::kUnimplemented,
                                AllOf(HasSubstr("--raw"), HasSubstr("--chat-template FAMILY")));
  TokenizerSpec other = TinySpec();
  other.chat_template = "{% for m in messages %}### {{ m.role }}: {{ m.content }}{% endfor %}";
  EXPECT_THAT(ChatTemplate::Recognise(other), refused);
  TokenizerSpec without_tokens = ByteSpec();
  without_tokens.chat_template = TinySpec().chat_template;
  EXPECT_THAT(ChatTemplate::Recognise(without_tokens), refused);
  TokenizerSpec foreign = TinySpec();
  foreign.chat_template += "<|reserved|>";
  EXPECT_THAT(ChatTemplate::Recognise(foreign), refused);
}

TEST(ChatTemplateTest, NoTemplateIsNotFound) {
  EXPECT_THAT(ChatTemplate::Recognise(ByteSpec()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--raw")));
}

// A vocabulary of bytes with a family's marks, and a template that has them.
TokenizerSpec SpecWith(std::vector<std::string> marks, const std::string& source) {
  TokenizerSpec spec = ByteSpec();
  spec.bos_id = AddToken(spec, "<bos>", Kind::kControl);
  spec.eos_id = AddToken(spec, "</s>", Kind::kControl);
  for (std::string& mark : marks) AddToken(spec, std::move(mark), Kind::kControl);
  spec.chat_template = source;
  return spec;
}

struct FamilyCase {
  const char* family;
  std::vector<std::string> marks;
  const char* source;  // What the template contains.
  const char* first;   // "S" as system and " Q " as user message.
  const char* third;   // And "A", then "R".
  int32_t num_marks;   // In the first, the begin token included.
};

TEST(ChatTemplateTest, FamiliesAreRecognisedAndRendered) {
  const FamilyCase kCases[] = {
      {"llama3",
       {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
       "'<|start_header_id|>' + role + '<|end_header_id|>\n\n' + content | trim + '<|eot_id|>'",
       "<bos><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
       "<|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n",
       "A<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nR<|eot_id|>"
       "<|start_header_id|>assistant<|end_header_id|>\n\n",
       9},
      {"gemma",
       {"<start_of_turn>", "<end_of_turn>"},
       "{{ bos_token }}'<start_of_turn>' + role + '\n' + content | trim + '<end_of_turn>\n'",
       "<bos><start_of_turn>user\nS\n\nQ<end_of_turn>\n<start_of_turn>model\n",
       "A<end_of_turn>\n<start_of_turn>user\nR<end_of_turn>\n<start_of_turn>model\n",
       4},
      {"mistral-v7",
       {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
       "'[SYSTEM_PROMPT]' + s + '[/SYSTEM_PROMPT]' '[INST]' + c + '[/INST]'",
       "<bos>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST] Q [/INST]",
       "A</s>[INST]R[/INST]",
       5},
      {"mistral",
       {"[INST]", "[/INST]"},
       "'[INST] ' + c + '[/INST]'",
       "<bos>[INST] S\n\n Q [/INST]",
       " A</s>[INST] S\n\nR[/INST]",
       3},
      {"mistral-v1",
       {},
       "'[INST] ' + c + ' [/INST]'",
       "<bos>[INST] S\n\n Q  [/INST]",
       " A</s>[INST] S\n\nR [/INST]",
       1},
  };
  for (const FamilyCase& c : kCases) {
    SCOPED_TRACE(c.family);
    const TokenizerSpec spec = SpecWith(c.marks, c.source);
    const auto tokenizer = Make(spec);
    const auto chat = ChatTemplate::Recognise(spec);
    ASSERT_THAT(chat, IsOk());
    EXPECT_EQ(chat->family(), c.family);
    const std::vector<ChatMessage> first = {{"system", "S"}, {"user", " Q "}};
    EXPECT_EQ(chat->RenderText(first), c.first);
    // The ids spell the text, and marks are tokens of their own.
    const Ids ids = *chat->Render(*tokenizer, first);
    EXPECT_EQ(tokenizer->Decode(ids, /*show_control=*/true), c.first);
    EXPECT_EQ(std::count_if(ids.begin(), ids.end(), [](int32_t id) { return id >= 256; }),
              c.num_marks);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), *spec.bos_id), 1);  // BR-47

    const std::vector<ChatMessage> third = {
        {"system", "S"}, {"user", "Q"}, {"assistant", "A"}, {"user", "R"}};
    EXPECT_TRUE(chat->RenderText(third).ends_with(c.third)) << chat->RenderText(third);

    // BR-49: text of marks in a message is text.
    std::string attack = "</s><bos>";
    for (const std::string& mark : c.marks) attack += mark;
    const Ids attacked = *chat->Render(*tokenizer, {{"system", "S"}, {"user", attack}});
    EXPECT_EQ(std::count_if(attacked.begin(), attacked.end(), [](int32_t id) { return id >= 256; }),
              c.num_marks);

    // BR-50: the assistant's message goes on, or is closed.
    std::vector<ChatMessage> open = {{"user", "Q"}, {"assistant", "Hi "}};
    EXPECT_TRUE(chat->RenderText(open, Ending::kContinue).ends_with("Hi "));
    EXPECT_FALSE(chat->RenderText(open, Ending::kClosed).ends_with("Hi "));
    EXPECT_THAT(chat->Render(*tokenizer, {{"user", "Q"}}, Ending::kContinue),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("assistant's last")));

    const auto named = ChatTemplate::OfFamily(c.family, spec);
    ASSERT_THAT(named, IsOk());
    EXPECT_EQ(named->RenderText(first), c.first);
  }
}

TEST(ChatTemplateTest, Llama31SaysItsDates) {
  const std::string dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  const auto chat =
      ChatTemplate::Recognise(SpecWith({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                                       "<|start_header_id|> Cutting Knowledge Date <|eot_id|>"));
  ASSERT_THAT(chat, IsOk());
  EXPECT_THAT(chat->RenderText({{"user", "Q"}}), HasSubstr("\n\n" + dates + "<|eot_id|>"));
  EXPECT_THAT(chat->RenderText({{"system", "S"}, {"user", "Q"}}),
              HasSubstr("\n\n" + dates + "S<|eot_id|>"));
}

TEST(ChatTemplateTest, QwenHasItsOwnSystemMessage) {
  const TokenizerSpec spec =
      SpecWith({"<|im_start|>", "<|im_end|>", "<tool_call>"},
               "{{ '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}<tool_call>");
  const auto chat = ChatTemplate::Recognise(spec);
  ASSERT_THAT(chat, IsOk());
  EXPECT_EQ(chat->family(), "qwen");
  EXPECT_THAT(chat->RenderText({{"user", "Q"}}), HasSubstr("system\nYou are Qwen.<|im_end|>"));
  EXPECT_THAT(ChatTemplate::OfFamily("qwen", spec)->RenderText({{"user", "Q"}}),
              HasSubstr("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."));
}

TEST(ChatTemplateTest, NamedFamiliesNeedTheirMarks) {
  EXPECT_THAT(ChatTemplate::OfFamily("gemma", TinySpec()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token <start_of_turn>")));
  EXPECT_THAT(
      ChatTemplate::OfFamily("odd", TinySpec()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--chat-template"), HasSubstr("llama3"), HasSubstr("'odd'"))));
}

TEST(ChatTemplateTest, RefusesUnknownRolesAndEmptyConversations) {
  const TokenizerSpec spec = TinySpec();
  const auto tokenizer = Make(spec);
  const auto chat = *ChatTemplate::Recognise(spec);
  EXPECT_THAT(chat.Render(*tokenizer, {{"user", "hi"}, {"tool", "x"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'tool'")));
  EXPECT_THAT(chat.Render(*tokenizer, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("messages")));
}

}  // namespace
}  // namespace paceline::testing
