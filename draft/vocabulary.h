// Whether a draft model speaks the target's tokens.
#pragma once

#include "absl/status/status.h"
#include "models/tokenizer.h"

namespace paceline {

// OK if both tokenizers have the same pieces, kinds and special ids, id by id. Otherwise
// kFailedPrecondition naming the first id that differs and both pieces, or the special token.
absl::Status CompareVocabularies(const Tokenizer& target, const Tokenizer& draft);

}  // namespace paceline
