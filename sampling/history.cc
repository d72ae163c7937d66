#include "sampling/history.h"

namespace paceline {

void TokenCounts::AddPrompt(std::span<const int32_t> tokens) {
  for (int32_t token : tokens) ++prompt_[token];
}

void TokenCounts::AddOutput(std::span<const int32_t> tokens) {
  for (int32_t token : tokens) ++output_[token];
}

}  // namespace paceline
