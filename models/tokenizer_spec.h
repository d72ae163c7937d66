// What a model file says of its tokenizer, whatever the file: the steps from text to ids as data.
//
// Text is cut at added tokens; the stretches between are changed by `normalisers`, then by
// `word_steps`, cut into words by the splits, spelled in tokens for bytes or characters, and
// merged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace paceline {

// A change of a stretch of text.
struct TextStep {
  enum class Kind {
    kNfc,  // Unicode normal forms; bytes that are not UTF-8 stay as they are.
    kNfd,
    kNfkc,
    kNfkd,
    kReplace,         // Every `from` becomes `to`.
    kPrepend,         // `to` in front,
    kPrependMissing,  // unless the stretch begins with it.
  };
  Kind kind = Kind::kNfc;
  std::string from;
  std::string to;
  bool at_start_only = false;  // Of the stretch that begins the text.
};

// One cut of text into words.
struct SplitRule {
  // What becomes of matches, and of the stretches between them.
  enum class Matches {
    kIsolated,      // Every match and every stretch is a word.
    kRemoved,       // Stretches are words, matches are dropped.
    kWithPrevious,  // A match ends the word in front of it,
    kWithNext,      // or begins the one behind it.
    kContiguous,    // Matches that touch are one word.
  };
  std::string pattern;
  bool literal = false;  // The pattern is the text itself.
  Matches matches = Matches::kIsolated;
  bool invert = false;  // Matches and the stretches between them change places.
};

// How an added token is found in text, where it is not just its own text.
struct AddedOptions {
  int32_t id = 0;
  bool normalised = false;   // It is looked for behind the normalisers.
  bool single_word = false;  // Only where no letter, digit or underscore touches it.
  bool takes_left = false;   // With the white space in front of it,
  bool takes_right = false;  // or behind it.
};

struct TokenizerSpec {
  enum class TokenKind : uint8_t {
    kNormal = 1,
    kUnknown = 2,  // Control, unknown and user-defined tokens are added tokens: found in text
    kControl = 3,  // before anything else.
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6,  // "<0x00>" to "<0xFF>": for bytes of characters that have no token.
  };
  using Merge = std::pair<std::string, std::string>;

  std::string model;  // "gpt2": tokens spell bytes; "llama": they spell characters.
  std::string pre;    // Name of a set of splits; empty: `splits`.
  std::vector<TextStep> normalisers;
  std::vector<TextStep> word_steps;
  std::vector<SplitRule> splits;
  std::vector<std::string> tokens;  // [V] as the file writes them ("gpt2": byte-level alphabet).
  std::vector<TokenKind> kinds;     // [V]
  std::vector<AddedOptions> added;  // Of added tokens that have any.
  std::vector<Merge> merges;        // Best first; or
  std::vector<float> scores;  // [V]: neighbours that spell a token become it, best score first.
  std::string space_mark;     // Stands for a space in tokens' texts; empty: nothing does.
  bool drops_first_space = false;  // A whole text is written without its first space.
  bool fuses_unknown = false;      // Unknown characters that touch are one unknown token.
  std::optional<int32_t> bos_id, eos_id, eot_id, unknown_id, pad_id;
  std::vector<int32_t> more_end_ids;  // Besides eos_id and eot_id.
  bool add_bos = false;
  bool ignore_merges = false;  // A word that is a token is taken whole, unmerged.
  std::string chat_template;   // Empty if the file has none.
};

}  // namespace paceline
