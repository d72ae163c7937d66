// The command line as its user meets it, with a tiny model: output, files, signals, exit codes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/cli_fixture.h"

namespace paceline::testing {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CliGenerateTest, WhatTheEngineRefusesIsNamed) {
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--stop", ""})), "--stop");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--trace", "/nowhere/trace"})), "--trace");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--verify", "greedy"})), "--verify");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "-c", "9999"})), "--context");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--engine", "steam"})), "--engine");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--device", "abacus"})), "--device");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--engine", "fast", "--device", "cuda"})),
                "--device");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--isa", "abacus"})), "--isa");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--engine", "reference", "--isa", "portable"})),
                "--isa");
  ExpectRefused(RunCli(Generate({"-q", "--prompt-ids", "999"})), "--prompt-ids");
}

TEST(CliGenerateTest, SameSeedSameText) {
  const ProcessResult first = RunCli(Generate({"-p", "hello there"}));
  ASSERT_EQ(first.code, 0) << first.error;
  EXPECT_THAT(first.error, AllOf(HasSubstr("seed           7"), HasSubstr("tokens/s")));
  EXPECT_EQ(RunCli(Generate({"-p", "hello there"})).out, first.out);
}

// The second stream changes the text and takes every draft that the first one takes.
TEST(CliGenerateTest, GuidanceIsTheSameWithAndWithoutDrafts) {
  const std::vector<std::string> guided = {"-p", "hello there", "--temperature", "0", "-q",
                                           "--cfg-scale", "2", "--cfg-negative-prompt", "bye"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), guided.begin(), guided.end());
    return RunCli(Generate(more));
  };
  const ProcessResult plain = with({"--draft", "none"});
  ASSERT_EQ(plain.code, 0) << plain.error;
  for (const char* draft : {"ngram", "early-exit"}) EXPECT_EQ(with({"--draft", draft}).out, plain.out);
  EXPECT_NE(RunCli(Generate({"-p", "hello there", "--temperature", "0", "-q"})).out, plain.out);
}

TEST(CliGenerateTest, QuietSaysNothing) {
  EXPECT_EQ(RunCli(Generate({"-p", "a", "-q"})).error, "");
}

TEST(CliGenerateTest, JsonHasItsParts) {
  const ProcessResult result = RunCli(Generate({"-p", "hello", "--json", "--logprobs", "2"}));
  ASSERT_EQ(result.code, 0) << result.error;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["model"], Model());
  EXPECT_EQ(answer["usage"]["completion_tokens"], answer["tokens"].size());
  EXPECT_EQ(answer["seed"], 7);
  EXPECT_EQ(answer["speculation"]["rule"], "standard");
  EXPECT_EQ(answer["speculation"]["num_emitted_tokens"], answer["tokens"].size());
  EXPECT_EQ(answer["logprobs"]["raw"].size(), answer["tokens"].size());
  EXPECT_GE(answer["logprobs"]["processed"][0]["top"].size(), 2u);
  EXPECT_GT(answer["timings"]["load_ms"], 0);
}

TEST(CliGenerateTest, PromptComesFromStandardInput) {
  const ProcessResult given = RunCli(Generate({"--prompt", "hello", "--json"}));
  const ProcessResult read = RunCli(Generate({"--prompt", "-", "--json"}), "hello\n");
  ASSERT_EQ(read.code, 0) << read.error;
  EXPECT_EQ(json::parse(read.out)["tokens"], json::parse(given.out)["tokens"]);
}

TEST(CliGenerateTest, EmptyPromptIsAPrompt) {
  EXPECT_EQ(RunCli(Generate({"--prompt", ""})).code, 0);
  EXPECT_EQ(RunCli(Generate({"--prompt=", "--json"})).code, 0);
  // Without a template and a begin token there is nothing to continue.
  ExpectRefused(RunCli(Generate({"--prompt", "", "--raw", "-q"})), "at least one token");
}

TEST(CliGenerateTest, PromptLongerThanTheContextIsRefused) {
  ExpectRefused(RunCli(Generate({"-q", "-p", "hello there", "-c", "4"})), "context of 4");
}

TEST(CliGenerateTest, NoTokensIsAnEmptyAnswer) {
  const ProcessResult result = RunCli({"generate", "-m", Model(), "-p", "a", "-n", "0", "--json"});
  ASSERT_EQ(result.code, 0) << result.error;
  EXPECT_TRUE(json::parse(result.out)["tokens"].empty());
}

TEST(CliGenerateTest, TraceHasALineADecision) {
  const std::string path = TempPath("trace.jsonl");
  const ProcessResult result =
      RunCli(Generate({"-p", "ab ab ab", "--json", "--temperature", "0", "--trace", path}));
  ASSERT_EQ(result.code, 0) << result.error;
  const json answer = json::parse(result.out);
  std::ifstream in(path);
  std::vector<json> emitted;
  for (std::string line; std::getline(in, line);) {
    const json entry = json::parse(line);
    ASSERT_EQ(entry.size(), 9u) << line;
    if (entry["decision"] != "rejected") emitted.push_back(entry["id"]);
  }
  EXPECT_EQ(json(emitted), answer["tokens"]);
}

TEST(CliGenerateTest, FullDiskIsReported) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const ProcessResult result = RunCli(Generate({"-p", "a", "-q", "--trace", "/dev/full"}));
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("--trace"));
}

TEST(CliGenerateTest, PromptsFileGivesAnObjectALine) {
  const std::string path = TempPath("prompts.jsonl");
  WriteFile(path,
            "{\"prompt\": \"one\", \"category\": \"x\"}\n\n\"two\"\n"
            "{\"turns\": [\"three\", \"four\"], \"question_id\": 81}\n");
  for (const char* parallel : {"1", "2"}) {
    const ProcessResult result =
        RunCli(Generate({"--prompts", path, "--json", "--parallel", parallel}));
    ASSERT_EQ(result.code, 0) << result.error;
    std::istringstream lines(result.out);
    std::vector<json> answers;
    for (std::string line; std::getline(lines, line);) answers.push_back(json::parse(line));
    ASSERT_EQ(answers.size(), 3u);
    EXPECT_EQ(answers[0]["category"], "x");
    EXPECT_EQ(answers[2]["question_id"], 81);
  }
}

std::vector<std::string> LongRun(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"generate", "-m",           Model(),   "-p",   "a",  "-n",
                                        "100000",   "--ignore-eos", "--draft", "none", "-t", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// A trace into a pipe that nobody drains stops the run in its middle, however fast it is.
TEST(CliGenerateTest, InterruptEndsWithWhatThereIs) {
  const std::string path = TempPath("trace");
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int trace = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(fcntl(trace, F_SETPIPE_SZ, 4096), 0);
  Process process(LongRun({"--json", "--trace", path}));
  pollfd started = {trace, POLLIN, 0};
  ASSERT_EQ(poll(&started, 1, 60000), 1);
  process.Signal(SIGINT);
  fcntl(trace, F_SETFL, 0);
  char buffer[4096];
  while (read(trace, buffer, sizeof(buffer)) > 0) continue;
  close(trace);
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.code, 130) << result.error;
  EXPECT_THAT(result.error, HasSubstr("interrupted"));
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["finish_reason"], "interrupted");
  EXPECT_LT(answer["tokens"].size(), 200u);
}

TEST(CliGenerateTest, ClosedOutputEndsQuietly) {
  Process process(LongRun({}));
  process.CloseOutput();
  const ProcessResult result = process.Wait();
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.error, ::testing::Not(HasSubstr("paceline:")));
}

TEST(CliGenerateTest, SliceDraftsForItsModel) {
  const std::string path = TempPath("slice.gguf");
  ASSERT_EQ(RunCli({"slice", "--layers", "2", Model(), path}).code, 0);
  const ProcessResult plain =
      RunCli(Generate({"-p", "hello", "--json", "--temperature", "0", "--draft", "none"}));
  const ProcessResult drafted =
      RunCli(Generate({"-p", "hello", "--json", "--temperature", "0", "--draft-model", path}));
  ASSERT_EQ(drafted.code, 0) << drafted.error;
  const json answer = json::parse(drafted.out);
  EXPECT_EQ(answer["tokens"], json::parse(plain.out)["tokens"]);
  EXPECT_EQ(answer["speculation"]["draft"], "model");
  EXPECT_GT(answer["speculation"]["num_draft_tokens"], 0);
  ExpectRefused(RunCli({"slice", "--layers", "9", Model(), path}), "layers");
}

TEST(CliGenerateTest, DraftWithAnotherVocabularyIsRefused) {
  std::ifstream in(Model(), std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const size_t token = bytes.find("<|eos|>");
  ASSERT_NE(token, std::string::npos);
  bytes[token + 2] = 'x';
  const std::string path = TempPath("other.gguf");
  WriteFile(path, bytes);
  ExpectRefused(RunCli(Generate({"-q", "-p", "a", "--draft-model", path})), "--draft-model");
}

TEST(CliGenerateTest, ShowDraftsColoursTokens) {
  const ProcessResult result =
      RunCli(Generate({"-p", "hello", "--draft", "early-exit", "--show-drafts"}));
  ASSERT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("\033["));
  EXPECT_THAT(result.error, HasSubstr("accepted draft"));
}

TEST(CliGenerateTest, BenchComparesBothWays) {
  const std::string path = TempPath("prompts.jsonl");
  WriteFile(path, "{\"prompt\": \"a b a b\", \"category\": \"x\"}\n{\"prompt\": \"c\"}\n");
  const std::vector<std::string> arguments = {"bench",  "-m", Model(), "--prompts", path,
                                              "--runs", "2",  "-n",    "8",         "--temperature",
                                              "0",      "-q"};
  const ProcessResult text = RunCli(arguments);
  ASSERT_EQ(text.code, 0) << text.error;
  EXPECT_THAT(text.out, AllOf(HasSubstr("identical output"), HasSubstr("speed-up")));
  std::vector<std::string> with_json = arguments;
  with_json.push_back("--json");
  const json report = json::parse(RunCli(with_json).out);
  EXPECT_EQ(report["groups"].back()["name"], "all");
  EXPECT_EQ(report["groups"].back()["num_prompts"], 2);
  EXPECT_EQ(report["groups"].back()["num_differing"], 0);
}

}  // namespace
}  // namespace paceline::testing
