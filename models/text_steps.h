// Changes of text in front of the tokenizer's words: normal forms, replacements, prefixes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "models/tokenizer_spec.h"

namespace paceline::internal {

// kInvalidArgument naming the step: a replacement of nothing, or one of more than 64 bytes.
absl::Status CheckTextSteps(std::span<const TextStep> steps);

// `text` (any bytes) after all steps. `at_start`: it begins the whole text. An empty text stays
// empty.
std::string ApplyTextSteps(std::span<const TextStep> steps, std::string_view text, bool at_start);

}  // namespace paceline::internal
