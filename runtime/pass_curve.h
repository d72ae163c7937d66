// What a target pass costs by its number of rows: the curve that decides how much to draft.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/statistics.h"
#include "models/language_model.h"

namespace paceline {

struct PassCost {
  int32_t rows = 0;
  double ms = 0;   // Median.
  Interval range;  // Quickest and slowest.
};

struct PassCurveOptions {
  std::vector<int32_t> rows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32};
  int32_t context = 128;  // Positions cached before a pass.
  int32_t runs = 15;      // Passes of each width, the widths in turn; a first round is not counted.
};

// Times passes of one sequence that want logits of every row, and takes their entries back. `done`
// is asked after each round; true ends the measurement with the rounds so far.
// Errors: kInvalidArgument (options), kCancelled (not one round), those of the model.
absl::StatusOr<std::vector<PassCost>> MeasurePasses(LanguageModel& model,
                                                    const PassCurveOptions& options,
                                                    const std::function<bool()>& done);

// Times the reading of a prompt of `num_tokens`, cut to the context length, as often as asked; `rows`
// of the result are its tokens. Otherwise as above.
absl::StatusOr<PassCost> MeasurePrompt(LanguageModel& model, int32_t num_tokens, int32_t runs,
                                       const std::function<bool()>& done);

}  // namespace paceline
