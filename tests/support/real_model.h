// The real checkpoint that some tests run on. It is not part of the repository.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace paceline::testing {

inline std::string EnvironmentOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? fallback : value;
}

// SmolLM2-135M-Instruct: PACELINE_MODEL, else the file in the cache folder. nullopt if it is not
// there; a test then skips and says so.
inline std::optional<std::string> SmolLmPath() {
  const std::string home_cache = EnvironmentOr("HOME", "/root") + "/.cache";
  const std::string cache = EnvironmentOr(
      "PACELINE_CACHE_DIR", EnvironmentOr("XDG_CACHE_HOME", home_cache) + "/paceline");
  const std::string path =
      EnvironmentOr("PACELINE_MODEL", cache + "/models/SmolLM2-135M-Instruct.Q4_1.gguf");
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return path;
}

}  // namespace paceline::testing
