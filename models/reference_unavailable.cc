#include "models/reference_transformer.h"

namespace paceline {

absl::StatusOr<std::unique_ptr<LanguageModel>> LoadReferenceModel(const WeightSource&,
                                                                  const ModelOptions&) {
  return absl::UnimplementedError(
      "the reference engine: expected a build with libtorch (PACELINE_WITH_TORCH), got one "
      "without");
}

}  // namespace paceline
