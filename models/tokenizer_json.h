// The tokenizer.json of Hugging Face folders.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "models/tokenizer_spec.h"

namespace paceline {

// Reads byte-pair encodings, of bytes and of characters: normalisers (NFC, NFD, NFKC, NFKD,
// Replace, Prepend, Sequence), pre-tokenizers (Split, Digits, ByteLevel, Metaspace, Sequence),
// added tokens with all their options, decoders, and the begin token of the post-processor. Special
// ids but bos_id, and the chat template, stand in other files of a folder.
//
// Ids without a token are unused tokens. Errors: kDataLoss naming the file, the part, what is
// expected and what came; kUnimplemented naming a kind of model (Unigram, WordPiece) or of step
// that is not supported. Memory is bounded by a few times the size of `bytes`.
absl::StatusOr<TokenizerSpec> TokenizerFromJson(std::span<const uint8_t> bytes,
                                                std::string_view file);

}  // namespace paceline
