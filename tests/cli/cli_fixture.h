// What the tests of the command line share: the tiny model, files, and the shape of a refusal.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/process.h"
#include "tests/support/test_data.h"

namespace paceline::testing {

inline const std::string& Model() {
  static const std::string path = DataPath("models/llama/model-f32.gguf");
  return path;
}

inline std::string TempPath(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return ::testing::TempDir() + "paceline_" + test->name() + "_" + name;
}

inline void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::vector<std::string> Generate(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"generate", "-m", Model(), "-n", "12", "--seed", "7"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// One line that names `what`, nothing on standard output, exit code 2.
inline void ExpectRefused(const ProcessResult& result, const std::string& what) {
  EXPECT_EQ(result.code, 2) << result.error;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error,
              ::testing::AllOf(::testing::StartsWith("paceline: "), ::testing::HasSubstr(what),
                               ::testing::EndsWith("\n")));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
}

}  // namespace paceline::testing
