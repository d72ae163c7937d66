#include "runtime/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace paceline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Two drafts of four tokens: three accepted, one accepted; and a round without a draft.
GenerationResult SomeResult() {
  GenerationResult result;
  result.prompt_tokens = 7;
  result.prefill_ms = 12.5;
  result.seed = 18446744073709551615u;
  result.rule = "standard";
  Choice& choice = result.choices.emplace_back();
  choice.tokens = {1, 2, 3, 4, 5, 6, 7};
  choice.text = "one two";
  choice.telemetry.AddRound(4, 4, 3, 4);
  choice.telemetry.AddRound(4, 4, 1, 2);
  choice.telemetry.AddRound(0, 0, 0, 1);
  choice.telemetry.rounds_ms = 500;
  for (int i = 0; i < 6; ++i) choice.telemetry.AddJudged({0.5, 0.5, i == 0 ? kInfinity : 1.0});
  return result;
}

TEST(ReportJsonTest, AnswerHasEveryPart) {
  const GenerationResult result = SomeResult();
  const Json json = AnswerJson({"m.gguf", "an engine", "ngram", 4, 90}, result, result.choices[0]);
  EXPECT_EQ(json["text"], "one two");
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["total_tokens"], 14);
  EXPECT_EQ(json["timings"]["tokens_per_second"], 14.0);
  EXPECT_EQ(json["timings"]["load_ms"], 90);
  EXPECT_EQ(json["seed"], 18446744073709551615u);
  EXPECT_EQ(json["speculation"]["draft"], "ngram");
  EXPECT_EQ(json["speculation"]["acceptance_rate"], 0.5);
  EXPECT_EQ(json["speculation"]["mean_acceptance_length"], 3.0);
  EXPECT_EQ(json["speculation"]["num_infinite_kl"], 1);
  EXPECT_FALSE(json.contains("logprobs"));
  EXPECT_FALSE(json.contains("error"));
}

TEST(ReportJsonTest, RatesWithoutTrialsAreNull) {
  const Json json = TelemetryJson(Telemetry());
  for (const char* name : {"acceptance_rate", "mean_acceptance_length", "tokens_per_round",
                           "expected_acceptance", "kl_divergence", "survivors"}) {
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  EXPECT_TRUE(TimingsJson(Telemetry(), 0, 0)["tokens_per_second"].is_null());
}

TEST(ReportJsonTest, FailedAnswerCarriesItsError) {
  GenerationResult result = SomeResult();
  result.choices[0].status = absl::ResourceExhaustedError("cache: full");
  const Json json = AnswerJson({}, result, result.choices[0]);
  EXPECT_EQ(json["error"], "cache: full");
  EXPECT_EQ(json["finish_reason"], "error");
}

TEST(ReportJsonTest, FilteredLogProbIsNull) {
  Choice choice;
  choice.processed_logprobs = {{{3, -kInfinity}, {{4, -0.5}}}};
  const Json json = LogProbsJson(choice);
  EXPECT_TRUE(json["processed"][0]["logprob"].is_null());
  EXPECT_EQ(json["processed"][0]["top"][0]["token"], 4);
  EXPECT_TRUE(json["raw"].empty());
}

TEST(ReportJsonTest, TraceWritesNotANumberAsNull) {
  const Json json = TraceJson(2, {9, -1, 5, 0.25, kNoNumber, 0.5, Decision::kBonus}, "a");
  EXPECT_EQ(JsonText(json),
            R"({"choice":2,"position":9,"id":5,"piece":"a","p":0.25,"q":null,"u":0.5,)"
            R"("decision":"bonus","node":-1})");
}

TEST(ReportJsonTest, IllFormedBytesAreReplaced) {
  EXPECT_EQ(JsonText(Json("\xf0\x9f")), "\"\xef\xbf\xbd\"");
}

TEST(SummaryTextTest, SaysWhatWasAccepted) {
  const GenerationResult result = SomeResult();
  Summary summary;
  summary.run = {"m.gguf", "an engine", "ngram", 4, 90};
  summary.seed = 11;
  summary.Add(result, result.choices[0]);
  const std::string text = SummaryText(summary);
  EXPECT_THAT(text, HasSubstr("7 tokens in 500 ms = 14.0 tokens/s"));
  EXPECT_THAT(text, HasSubstr("50.0 %: 4 of 8 drafted tokens"));
  EXPECT_THAT(text, HasSubstr("bonus included"));
  EXPECT_THAT(text, HasSubstr("seed           11"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(SummaryTextTest, MissingValuesAreDashes) {
  const std::string text = SummaryText({});
  EXPECT_THAT(text, HasSubstr("accepted       -: 0 of 0"));
  EXPECT_THAT(text, HasSubstr("mean length    -"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(SummaryTextTest, EndingsOfSeveralAnswersAreCounted) {
  GenerationResult result = SomeResult();
  Summary summary;
  summary.Add(result, result.choices[0]);
  result.choices[0].finish_reason = FinishReason::kStop;
  summary.Add(result, result.choices[0]);
  summary.Add(result, result.choices[0]);
  EXPECT_THAT(SummaryText(summary), HasSubstr("length 1x, stop 2x"));
}

}  // namespace
}  // namespace paceline
