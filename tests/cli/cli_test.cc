// Options, files and exit codes, as far as they need no transformer: works without libtorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/cli_fixture.h"

namespace paceline::testing {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CliTest, HelpIsPrintedWithoutArguments) {
  const ProcessResult result = RunCli({});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("generate"), HasSubstr("bench"), HasSubstr("slice")));
  EXPECT_EQ(RunCli({"--help"}).out, result.out);
}

TEST(CliTest, EveryCommandHasHelp) {
  for (const char* command : {"generate", "bench", "compare", "inspect", "tokenize", "slice"}) {
    const ProcessResult result = RunCli({command, "--help"});
    EXPECT_EQ(result.code, 0) << command;
    EXPECT_THAT(result.out, HasSubstr(std::string("Usage: paceline ") + command));
  }
  EXPECT_THAT(RunCli({"generate", "--help"}).out, HasSubstr("--draft none"));
}

TEST(CliTest, VersionIsPrinted) { EXPECT_THAT(RunCli({"--version"}).out, StartsWith("paceline ")); }

TEST(CliTest, WrongOptionsAreNamed) {
  const std::vector<std::vector<std::string>> cases = {
      {"--bogus"},
      {"--temperature", "4x"},
      {"--temperature", "nan"},
      {"--temperature", "-1"},
      {"--top-p", "1.5"},
      {"--min-p", "1e999"},
      {"--top-k", "-2"},
      {"--seed", "-1"},
      {"--max-tokens", "5000000000"},
      {"--max-tokens", "-1"},
      {"--min-tokens", "-1"},
      {"--repetition-penalty", "0"},
      {"--logit-bias", "5"},
      {"--logit-bias", "99999=1"},
      {"--draft", "magic"},
      {"--draft-tokens", "65"},
      {"--draft-min", "9"},
      {"--exit-layers", "3"},
      {"--verify", "magic"},
      {"--parallel", "2"},
      {"--logprobs", "3"},
      {"--prompt-ids", "1,x"},
      {"--context", "-1"},
      {"--threads", "-1"},
  };
  for (std::vector<std::string> options : cases) {
    const std::string name = options[0];
    if (name != "--prompt-ids") options.insert(options.end(), {"-p", "hello"});
    options.push_back("-q");
    // Later options replace nothing: those of Generate() would be given twice.
    options.insert(options.begin(), {"generate", "-m", Model()});
    SCOPED_TRACE(name + " " + options[4]);
    ExpectRefused(RunCli(options), name);
  }
}

TEST(CliTest, ContradictionsAreRefused) {
  ExpectRefused(RunCli(Generate({})), "--prompt");
  ExpectRefused(RunCli(Generate({"-p", "a", "--prompt-ids", "1"})), "--prompt");
  ExpectRefused(RunCli(Generate({"-p", "a", "--chat", "--raw"})), "--chat");
  ExpectRefused(RunCli(Generate({"-p", "a", "--raw", "--system", "b"})), "--system");
  ExpectRefused(RunCli(Generate({"-p", "a", "--json", "--show-drafts"})), "--show-drafts");
  ExpectRefused(RunCli(Generate({"-p", "a", "--draft", "model"})), "--draft-model");
  ExpectRefused(RunCli({"generate", "-p", "a"}), "PACELINE_MODEL");
  ExpectRefused(RunCli(Generate({"-p", "a", "-q", "--negative-prompt", "b"})), "--negative-prompt");
  // Of several that are not known the first is named.
  ExpectRefused(RunCli(Generate({"-p", "a", "--bogus", "1", "--other", "2"})), "argument: --bogus;");
}

TEST(CliTest, PassesAreTimedBesideTheMachinesLimits) {
  const ProcessResult result =
      RunCli({"bench", "--passes", "-m", Model(), "--runs", "2", "--cached", "40", "--json", "-q"});
  ASSERT_EQ(result.code, 0) << result.error;
  const json report = json::parse(result.out);
  EXPECT_GT(report["stream_gb_per_s"], 0);
  EXPECT_GT(report["multiply_gmac_per_s"], 0);
  EXPECT_EQ(report["cached_positions"], 40);
  std::vector<int> rows;
  for (const json& pass : report["passes"]) {
    rows.push_back(pass["rows"]);
    EXPECT_GT(pass["ms"], 0);
    EXPECT_LE(pass["ms_min"], pass["ms"]);
    EXPECT_GE(pass["ms_max"], pass["ms"]);
  }
  EXPECT_EQ(rows, (std::vector<int>{1, 2, 3, 4, 5, 6, 8, 12, 16, 32}));
  EXPECT_EQ(report["prompt"]["tokens"], 256);  // The model's whole context.
  EXPECT_GT(report["prompt"]["tokens_per_second"], 0);
}

TEST(CliTest, MachineNamesTheInstructionSetChosen) {
  const ProcessResult result = RunCli({"inspect", "--machine", "--json"});
  ASSERT_EQ(result.code, 0) << result.error;
  const json machine = json::parse(result.out);
  EXPECT_EQ(machine["isa"], machine["isas"][0]);
  EXPECT_EQ(machine["isas"].back(), "portable");
  EXPECT_GE(machine["threads"], 1);
}

TEST(CliTest, MeasurementsRefuseWhatTheyCannotUse) {
  const auto bench = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "--passes", "-m", Model()});
    return RunCli(more);
  };
  ExpectRefused(bench({"--runs", "0"}), "--runs");
  ExpectRefused(bench({"--prompts", "x.jsonl"}), "--passes");
  ExpectRefused(bench({"--cached", "-1", "-q"}), "--cached");
  ExpectRefused(bench({"--cached", "240", "-q"}), "--cached");
  ExpectRefused(bench({"--isa", "sse9", "-q"}), "--isa");
  ExpectRefused(RunCli({"inspect"}), "FILE");
  ExpectRefused(RunCli({"inspect", Model(), "--machine"}), "FILE");
  ExpectRefused(RunCli({"compare", "-m", Model()}), "--prompts");
  ExpectRefused(RunCli({"compare", "-m", Model(), "--prompts", "x", "--positions", "0"}),
                "--positions");
}

TEST(CliTest, DamagedModelIsOneLine) {
  const std::string path = TempPath("broken.gguf");
  std::string bytes(1000, 'x');
  WriteFile(path, bytes);
  ExpectRefused(RunCli({"inspect", path}), path);
  ExpectRefused(RunCli({"generate", "-m", path, "-p", "a"}), path);
  ExpectRefused(RunCli({"inspect", "/nowhere.gguf"}), "/nowhere.gguf");
  std::ifstream whole(Model(), std::ios::binary);
  bytes.assign(std::istreambuf_iterator<char>(whole), {});
  WriteFile(path, bytes.substr(0, bytes.size() / 2));
  ExpectRefused(RunCli({"inspect", path}), path);
}

TEST(CliTest, RefusalWithJsonLeavesOutputEmpty) {
  ExpectRefused(RunCli(Generate({"-p", "a", "--json", "--top-p", "2"})), "--top-p");
}

TEST(CliTest, MalformedPromptLinesAreNamed) {
  const std::string path = TempPath("prompts.jsonl");
  for (const char* line : {"{\"prompt\": 3}", "{", "[]", "{\"turns\": []}", "null", "plain"}) {
    WriteFile(path, std::string("\"fine\"\n") + line + "\n");
    SCOPED_TRACE(line);
    ExpectRefused(RunCli(Generate({"--prompts", path})), path + ":2");
  }
  WriteFile(path, "");
  ExpectRefused(RunCli(Generate({"--prompts", path})), "--prompts");
  ExpectRefused(RunCli(Generate({"--prompts", "/nowhere.jsonl"})), "/nowhere.jsonl");
}

TEST(CliTest, InspectAndTokenize) {
  const ProcessResult inspected = RunCli({"inspect", Model(), "--json"});
  ASSERT_EQ(inspected.code, 0) << inspected.error;
  const json model = json::parse(inspected.out);
  EXPECT_EQ(model["architecture"], "llama");
  EXPECT_EQ(model["num_layers"], 3);
  EXPECT_EQ(model["tokenizer"]["num_tokens"], 320);
  EXPECT_THAT(RunCli({"inspect", Model()}).out, HasSubstr("chat template"));

  const ProcessResult ids = RunCli({"tokenize", "-m", Model(), "--ids", "hello"});
  ASSERT_EQ(ids.code, 0) << ids.error;
  const json tokens = json::parse(RunCli({"tokenize", "-m", Model(), "--json", "-"}, "hello").out);
  EXPECT_EQ(json::parse("[" + ids.out + "]"), tokens["ids"]);
}

}  // namespace
}  // namespace paceline::testing
