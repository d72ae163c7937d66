#include "models/model_options.h"

#include "absl/strings/str_cat.h"

namespace paceline {

absl::StatusOr<ModelConfig> ConfigFor(const ModelConfig& config, const ModelOptions& options) {
  if (options.context_length < 0 || options.context_length > config.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("context: expected a number in [1, ", config.context_length,
                     "], the model's own, or 0, got ", options.context_length));
  }
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: expected a number in [1, 1024], or 0, got ", options.num_threads));
  }
  ModelConfig result = config;
  if (options.context_length > 0) result.context_length = options.context_length;
  return result;
}

}  // namespace paceline
