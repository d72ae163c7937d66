#include "models/load_model.h"

#include "absl/strings/str_cat.h"
#include "models/cpu/cpu_transformer.h"
#include "models/reference_transformer.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadModel(const WeightSource& weights,
                                                         const ModelOptions& options) {
  const bool cpu = options.device == "cpu";
  if (options.engine == "reference" || (options.engine.empty() && !cpu)) {
    if (!options.isa.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("isa: expected the fast engine for it, got ", options.isa,
                       " for the reference engine"));
    }
    return LoadReferenceModel(weights, options);
  }
  if (!options.engine.empty() && options.engine != "fast") {
    return absl::InvalidArgumentError(
        absl::StrCat("engine: expected fast or reference, got ", options.engine));
  }
  if (!cpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: expected cpu for the fast engine, got ", options.device));
  }
  return LoadCpuModel(weights, options);
}

}  // namespace paceline
