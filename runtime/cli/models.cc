// Models by name: those that the scripts can install, and what lies in the cache folder.
#include "runtime/cli/models.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/output.h"
#include "runtime/report.h"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;

struct NamedModel {
  const char* name;
  const char* file;  // In the cache folder.
  double megabytes;  // To download.
  const char* about;
};

// scripts/versions.sh pins where each one comes from.
constexpr NamedModel kModels[] = {
    {"smollm2-135m-instruct", "SmolLM2-135M-Instruct.Q4_1.gguf", 93, "chat, the default; Q4_1"},
    {"gemma3-270m", "gemma-3-270m-q4_k_m.gguf", 253, "base, no chat; Q4_K, Q5_0, Q6_K, Q8_0"},
};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As scripts/common.sh chooses it.
fs::path CacheFolder() {
  if (const std::string own = Variable("PACELINE_CACHE_DIR"); !own.empty()) return own;
  const std::string cache = Variable("XDG_CACHE_HOME");
  return fs::path(cache.empty() ? Variable("HOME") + "/.cache" : cache) / "paceline";
}

fs::path ModelsFolder() { return CacheFolder() / "models"; }

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

double Megabytes(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<double>(bytes) / 1e6;
}

// Files and folders of the cache that no name stands for.
std::vector<fs::path> OtherModels() {
  std::vector<fs::path> others;
  std::error_code error;
  for (fs::directory_iterator entry(ModelsFolder(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    const bool named = std::any_of(std::begin(kModels), std::end(kModels),
                                   [&](const NamedModel& model) { return file == model.file; });
    if (!named) others.push_back(entry->path());
  }
  std::sort(others.begin(), others.end());
  return others;
}

Json AllModels() {
  Json models = Json::array();
  for (const NamedModel& model : kModels) {
    const fs::path path = ModelsFolder() / model.file;
    models.push_back({{"name", model.name},
                      {"path", path.string()},
                      {"installed", Exists(path)},
                      {"megabytes", model.megabytes},
                      {"about", model.about}});
  }
  for (const fs::path& path : OtherModels()) {
    models.push_back({{"name", nullptr},
                      {"path", path.string()},
                      {"installed", true},
                      {"megabytes", Megabytes(path)},
                      {"about", ""}});
  }
  return models;
}

std::string Text(const Json& models) {
  std::string text = absl::StrCat("cache folder: ", ModelsFolder().string(), "\n\n");
  for (const Json& model : models) {
    const std::string path = model["path"].get<std::string>();
    const bool named = model["name"].is_string();
    absl::StrAppendFormat(
        &text, "%-22s %-13s %4.0f MB  %s\n",
        named ? model["name"].get<std::string>() : fs::path(path).filename().string(),
        model["installed"].get<bool>() ? "installed" : "not installed",
        model["megabytes"].get<double>(), model["about"].get<std::string>());
  }
  return text +
         "\n./scripts/run.sh COMMAND --model NAME installs a model of this list; --model takes any "
         "path of a\nGGUF file or a Hugging Face folder as well.\n";
}

}  // namespace

absl::Status ResolveModelName(std::string& model) {
  for (const NamedModel& named : kModels) {
    if (model != named.name || Exists(model)) continue;
    model = (ModelsFolder() / named.file).string();
    if (Exists(model)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("--model: expected an installed model, got ",
                                            named.name, "; ./scripts/run.sh COMMAND --model ",
                                            named.name, " installs it (", named.megabytes, " MB)"));
  }
  return absl::OkStatus();
}

int RunModels(bool json) {
  const Json models = AllModels();
  Output out;
  out.Write(json ? JsonText(models) + "\n" : Text(models));
  return ReportStatus(out.status());
}

}  // namespace paceline::cli
