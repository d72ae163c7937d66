// Prompts for tests on a real model.
#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

namespace paceline::testing {

// First turns (`turns`) or texts (`prompt`) of a JSONL file, at most `limit`.
inline std::vector<std::string> ReadPrompts(const std::string& path, size_t limit) {
  std::vector<std::string> prompts;
  std::ifstream in(path);
  for (std::string line; prompts.size() < limit && std::getline(in, line);) {
    const auto object = nlohmann::json::parse(line);
    prompts.push_back(object.contains("turns") ? object["turns"][0].get<std::string>()
                                               : object["prompt"].get<std::string>());
  }
  return prompts;
}

inline std::vector<std::string> DemoPrompts(size_t limit) {
  return ReadPrompts(DataPath("demo_prompts.jsonl"), limit);
}

// Every n-th prompt of the Spec-Bench questions, if PACELINE_SPEC_BENCH names the file.
inline std::optional<std::vector<std::string>> SpecBenchPrompts(size_t count) {
  const char* path = std::getenv("PACELINE_SPEC_BENCH");
  if (path == nullptr || !std::ifstream(path)) return std::nullopt;
  const std::vector<std::string> all = ReadPrompts(path, 1000);
  std::vector<std::string> spread;
  for (size_t i = 0; i < count; ++i) spread.push_back(all[i * all.size() / count]);
  return spread;
}

}  // namespace paceline::testing
