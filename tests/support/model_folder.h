// A model folder of the test data with some files changed.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/test_data.h"

namespace paceline::testing {

// A copy of tests/data/models/NAME in a folder of its own, removed with this.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& name) {
    static int number = 0;
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("model-folder-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(DataPath("models/" + name))) {
      if (entry.path().extension() != ".gguf") {
        std::filesystem::copy_file(entry.path(), path_ / entry.path().filename());
      }
    }
  }
  ~ModelFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;

  std::string path() const { return path_.string(); }

  std::string Read(const std::string& file) const {
    std::ifstream in(path_ / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& file, const std::string& content) const {
    std::ofstream(path_ / file, std::ios::binary | std::ios::trunc) << content;
  }
  void Rename(const std::string& from, const std::string& to) const {
    std::filesystem::rename(path_ / from, path_ / to);
  }
  void Remove(const std::string& file) const { std::filesystem::remove(path_ / file); }

  // Changes a JSON file: every member of `patch` replaces that of the file; null removes it.
  void Patch(const std::string& file, const nlohmann::json& patch) const {
    nlohmann::json value = nlohmann::json::parse(Read(file));
    value.merge_patch(patch);
    Write(file, value.dump());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace paceline::testing
