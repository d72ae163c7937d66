// Text to token ids and back: byte-pair encoding of bytes or of characters, with added tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/tokenizer_spec.h"

namespace paceline {

// A merge as files write it, "left right"; kInvalidArgument saying what came.
absl::StatusOr<TokenizerSpec::Merge> ParseMerge(std::string_view text);

class Tokenizer {
 public:
  // kInvalidArgument naming the part if the spec contradicts itself; kUnimplemented naming the
  // model, pre-tokenizer or kind of token that is not supported. Of tokens with equal text, and of
  // equal merges, the first counts.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();

  enum class Specials {
    kParse,      // Control and user-defined tokens are recognised in the text.
    kPlainText,  // Control tokens are text like any other; user-defined ones still match.
  };

  // Ids of `text`, which may hold any bytes: a run of ill-formed UTF-8 is a word of its own,
  // encoded byte by byte like any other. Added tokens are found first, the longest at each
  // position. What the vocabulary has no token for (SmolLM2 lacks 21 bytes, all rare control
  // characters or bytes that are in no or hardly any text) becomes the unknown token if the file
  // has one of that kind, and is left out otherwise, as the models' own tokenizers do. No begin
  // token is added: see AddBos. Cost: O(text) pattern matching and O(n log n) merging a word;
  // kInvalidArgument if the pattern's match limit is reached.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, Specials specials) const;

  // False if `text` has a byte or character that Encode leaves out: users should be told.
  bool CanSpell(std::string_view text) const;

  // `ids` with the begin token in front where the file asks for one and it is not there already.
  std::vector<int32_t> AddBos(std::vector<int32_t> ids) const;

  // Bytes of one token; empty for ids outside [0, V), for unused ids, and for control and unknown
  // tokens unless `show_control`. Valid while the tokenizer lives.
  std::string_view Piece(int32_t id, bool show_control = false) const;

  // A whole text of `ids`: pieces joined, ill-formed UTF-8 replaced by U+FFFD as StreamDecoder
  // does, without the space that a vocabulary may put in front of a first word.
  std::string Decode(std::span<const int32_t> ids, bool show_control = false) const;

  int32_t vocab_size() const;
  // Whether `id` is a control or unknown token: no text of its own. False outside [0, V).
  bool IsControl(int32_t id) const;
  // Ids that end a text: end of sequence and end of turn, without duplicates.
  const std::vector<int32_t>& end_ids() const;
  const TokenizerSpec& spec() const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Turns pieces into text without ever emitting half a character: an incomplete UTF-8 tail is held
// back until the next piece, ill-formed bytes become U+FFFD at once. Each maximal ill-formed part
// becomes one U+FFFD, however the bytes are cut into pieces.
class StreamDecoder {
 public:
  // `drop_first_space`: the text begins here, and is written without one space at its beginning.
  explicit StreamDecoder(bool drop_first_space = false) : drop_space_(drop_first_space) {}

  // Text that is complete after `bytes`.
  std::string Push(std::string_view bytes);
  // What is held back, as U+FFFD if anything is. The decoder is empty afterwards.
  std::string Flush();

 private:
  std::string tail_;  // At most three bytes.
  bool drop_space_;   // Nothing was seen yet.
};

}  // namespace paceline
