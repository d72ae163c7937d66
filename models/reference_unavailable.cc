// Stands in for the reference engine in builds without libtorch.
#include "absl/strings/str_cat.h"
#include "models/reference_transformer.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadReferenceModel(const WeightSource&,
                                                                  const ModelOptions& options) {
  constexpr absl::string_view kBuild = "in a build without libtorch";
  if (options.device != "cpu") {
    return absl::UnimplementedError(
        absl::StrCat("device: expected cpu ", kBuild, ", got ", options.device));
  }
  return absl::UnimplementedError(
      absl::StrCat("engine: expected fast ", kBuild, ", got reference"));
}

}  // namespace paceline
