#include "models/tokenizer.h"

#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "models/added_tokens.h"
#include "models/byte_level.h"
#include "models/merger.h"
#include "models/pre_tokenizer.h"
#include "models/text_steps.h"

namespace paceline {
namespace {

using Kind = TokenizerSpec::TokenKind;
using internal::AddedTokens;
using internal::Spellings;

// Kinds that are written out only where control tokens are asked for.
bool IsHidden(Kind kind) { return kind == Kind::kControl || kind == Kind::kUnknown; }

// Kinds that text can turn into by merging.
bool IsText(Kind kind) { return kind == Kind::kNormal || kind == Kind::kUserDefined; }

// Kinds that are found in text before anything else.
bool IsAdded(Kind kind) {
  return kind == Kind::kControl || kind == Kind::kUnknown || kind == Kind::kUserDefined;
}

bool SpellsBytes(const TokenizerSpec& spec) { return spec.model == "gpt2"; }

// The byte of a token such as "<0x0A>"; negative if it is none.
int ByteOfToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  for (const char digit : text.substr(3, 2)) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(digit))) return -1;
    byte = byte * 16 + (digit <= '9' ? digit - '0' : absl::ascii_tolower(digit) - 'a' + 10);
  }
  return byte;
}

// Some files mark ChatML's own tokens as user-defined; text must not turn into them all the same.
void MakeTurnMarksControl(TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const bool is_mark = spec.tokens[id] == "<|im_start|>" || spec.tokens[id] == "<|im_end|>";
    if (is_mark && spec.kinds[id] == Kind::kUserDefined) spec.kinds[id] = Kind::kControl;
  }
}

absl::Status Invalid(std::string_view part, std::string_view expected, std::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer ", std::string(part), ": expected ",
                                                 std::string(expected), ", got ",
                                                 std::string(got)));
}

absl::Status CheckIds(const TokenizerSpec& spec) {
  const std::pair<const char*, std::optional<int32_t>> ids[] = {{"bos_id", spec.bos_id},
                                                                {"eos_id", spec.eos_id},
                                                                {"eot_id", spec.eot_id},
                                                                {"unknown_id", spec.unknown_id},
                                                                {"pad_id", spec.pad_id}};
  const auto vocab_size = static_cast<int32_t>(spec.tokens.size());
  for (const auto& [name, id] : ids) {
    if (id.has_value() && (*id < 0 || *id >= vocab_size)) {
      return Invalid(name, absl::StrCat("an id in [0, ", vocab_size, ")"), absl::StrCat(*id));
    }
  }
  for (const int32_t id : spec.more_end_ids) {
    if (id < 0 || id >= vocab_size) {
      return Invalid("end id", absl::StrCat("an id in [0, ", vocab_size, ")"), absl::StrCat(id));
    }
  }
  if (spec.add_bos && !spec.bos_id.has_value()) {
    return Invalid("bos_id", "an id, as add_bos is set", "none");
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const TokenizerSpec& spec) {
  const size_t vocab_size = spec.tokens.size();
  if (vocab_size == 0 || vocab_size > std::numeric_limits<int32_t>::max()) {
    return Invalid("tokens", "between 1 and 2^31 - 1", absl::StrCat(vocab_size));
  }
  if (spec.kinds.size() != vocab_size) {
    return Invalid("kinds", absl::StrCat(vocab_size, ", one a token"),
                   absl::StrCat(spec.kinds.size()));
  }
  for (size_t id = 0; id < vocab_size; ++id) {
    if (spec.kinds[id] < Kind::kNormal || spec.kinds[id] > Kind::kByte) {
      return Invalid(absl::StrCat("kind of token ", id), "one in [1, 6]",
                     absl::StrCat(static_cast<int>(spec.kinds[id])));
    }
    if (spec.kinds[id] != Kind::kByte) continue;
    if (SpellsBytes(spec)) {
      return absl::UnimplementedError(absl::StrCat(
          "tokenizer kind of token ", id, ": byte tokens (6) are not known in byte-level BPE"));
    }
    if (ByteOfToken(spec.tokens[id]) < 0) {
      return Invalid(absl::StrCat("token ", id), "a byte such as <0x0A>, as its kind says",
                     absl::StrCat("'", absl::CHexEscape(spec.tokens[id].substr(0, 32)), "'"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckScores(const TokenizerSpec& spec) {
  if (spec.scores.empty()) return absl::OkStatus();
  if (SpellsBytes(spec) || !spec.merges.empty()) {
    return Invalid("scores", "none beside merges", absl::StrCat(spec.scores.size()));
  }
  if (spec.scores.size() != spec.tokens.size()) {
    return Invalid("scores", absl::StrCat(spec.tokens.size(), ", one a token"),
                   absl::StrCat(spec.scores.size()));
  }
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    if (!std::isnan(spec.scores[id])) continue;
    return Invalid(absl::StrCat("score of token ", id), "a number", "NaN");
  }
  return absl::OkStatus();
}

absl::Status CheckAdded(const TokenizerSpec& spec) {
  const auto vocab_size = static_cast<int32_t>(spec.tokens.size());
  for (const AddedOptions& options : spec.added) {
    if (options.id >= 0 && options.id < vocab_size && IsAdded(spec.kinds[options.id])) continue;
    return Invalid("added token", "the id of a control, unknown or user-defined token",
                   absl::StrCat(options.id));
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.model != "gpt2" && spec.model != "llama") {
    return absl::UnimplementedError(absl::StrCat(
        "tokenizer model: expected gpt2 (BPE of bytes) or llama (BPE of characters), got '",
        absl::CHexEscape(spec.model.substr(0, 64)), "'", spec.model == "t5" ? " (Unigram)" : ""));
  }
  PACELINE_RETURN_IF_ERROR(CheckTokens(spec));
  PACELINE_RETURN_IF_ERROR(CheckScores(spec));
  PACELINE_RETURN_IF_ERROR(CheckAdded(spec));
  PACELINE_RETURN_IF_ERROR(internal::CheckTextSteps(spec.normalisers));
  PACELINE_RETURN_IF_ERROR(internal::CheckTextSteps(spec.word_steps));
  return CheckIds(spec);
}

absl::StatusOr<int32_t> TokenOfMerge(const Spellings& spellings, size_t rank,
                                     std::string_view spelling) {
  const auto found = spellings.find(spelling);
  if (found == spellings.end()) {
    return Invalid(absl::StrCat("merge ", rank), "known text tokens",
                   absl::StrCat("'", absl::CHexEscape(std::string(spelling.substr(0, 64))), "'"));
  }
  return found->second;
}

absl::StatusOr<internal::PreTokenizer> MakePreTokenizer(const TokenizerSpec& spec) {
  if (spec.pre.empty()) return internal::PreTokenizer::Create(spec.splits);
  PACELINE_ASSIGN_OR_RETURN(const std::vector<SplitRule> rules, internal::NamedSplits(spec.pre));
  return internal::PreTokenizer::Create(rules);
}

// Control tokens by which chat templates end a turn. Files often say nothing more of them.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>", "<|eot_id|>", "<end_of_turn>"};

}  // namespace

absl::StatusOr<TokenizerSpec::Merge> ParseMerge(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == text.npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != text.npos) {
    return absl::InvalidArgumentError(absl::StrCat("expected 'left right', got '",
                                                   absl::CHexEscape(std::string(text.substr(0, 64))),
                                                   "'"));
  }
  return TokenizerSpec::Merge(text.substr(0, space), text.substr(space + 1));
}

struct Tokenizer::State {
  State(TokenizerSpec the_spec, internal::PreTokenizer the_pre_tokenizer)
      : spec(std::move(the_spec)), pre_tokenizer(std::move(the_pre_tokenizer)) {}

  void AddToken(int32_t id);
  void AddAddedTokens();
  std::string PieceOf(int32_t id) const;
  absl::Status AddMerges();
  void FindByteIds();
  void FindEndIds();

  absl::Status EncodeStretch(std::string_view text, Specials specials, bool at_start,
                             std::vector<int32_t>& ids) const;
  absl::Status EncodeWords(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;
  void EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;
  bool Spell(std::string_view word, std::vector<int32_t>& ids) const;
  bool SpellByBytes(std::string_view bytes, std::vector<int32_t>& ids) const;

  // Added tokens that are looked for in text as it is, or behind the normalisers; control tokens
  // only where they are asked for.
  struct AddedSet {
    AddedTokens plain;
    AddedTokens normalised;
  };
  const AddedSet& AddedOf(Specials specials) const {
    return specials == Specials::kParse ? all_added : user_defined;
  }

  const TokenizerSpec spec;
  internal::PreTokenizer pre_tokenizer;
  Spellings spellings;  // Of text tokens; views of `spec`.
  std::unique_ptr<internal::MergeRule> merges;
  std::array<int32_t, 256> byte_ids;  // -1: there is none.
  int32_t unknown = -1;               // What stands for what cannot be spelled; -1: nothing.
  std::vector<std::string> pieces;    // [V]
  AddedSet all_added;                 // Control, unknown and user-defined tokens.
  AddedSet user_defined;
  std::vector<int32_t> end_ids;
};

// Added tokens are written as they are. So are, by common practice, pieces outside of the
// byte-level alphabet.
std::string Tokenizer::State::PieceOf(int32_t id) const {
  const std::string& spelling = spec.tokens[id];
  const Kind kind = spec.kinds[id];
  if (kind == Kind::kByte) return std::string(1, static_cast<char>(ByteOfToken(spelling)));
  if (SpellsBytes(spec)) {
    return kind == Kind::kNormal ? internal::FromByteLevel(spelling).value_or(spelling) : spelling;
  }
  if (spec.space_mark.empty() || IsHidden(kind)) return spelling;
  return absl::StrReplaceAll(spelling, {{spec.space_mark, " "}});
}

void Tokenizer::State::AddToken(int32_t id) {
  if (IsText(spec.kinds[id])) spellings.try_emplace(spec.tokens[id], id);
  pieces.push_back(PieceOf(id));
}

void Tokenizer::State::AddAddedTokens() {
  std::vector<AddedOptions> options(spec.tokens.size());
  for (const AddedOptions& added : spec.added) options[added.id] = added;
  for (size_t id = 0; id < options.size(); ++id) {
    if (!IsAdded(spec.kinds[id])) continue;
    AddedOptions& added = options[id];
    added.id = static_cast<int32_t>(id);
    const bool normalised = added.normalised && !spec.normalisers.empty();
    const std::string text =
        normalised ? internal::ApplyTextSteps(spec.normalisers, spec.tokens[id], false)
                   : spec.tokens[id];
    const auto add = [&](AddedSet& set) {
      (normalised ? set.normalised : set.plain).Add(text, added);
    };
    add(all_added);
    if (spec.kinds[id] == Kind::kUserDefined) add(user_defined);
  }
}

absl::Status Tokenizer::State::AddMerges() {
  if (!spec.scores.empty()) {
    merges = std::make_unique<internal::ScoredMerges>(spec.tokens, spec.scores, spellings);
    return absl::OkStatus();
  }
  auto pairs = std::make_unique<internal::PairMerges>();
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    PACELINE_ASSIGN_OR_RETURN(const int32_t left_id, TokenOfMerge(spellings, rank, left));
    PACELINE_ASSIGN_OR_RETURN(const int32_t right_id, TokenOfMerge(spellings, rank, right));
    PACELINE_ASSIGN_OR_RETURN(const int32_t merged, TokenOfMerge(spellings, rank, left + right));
    pairs->Add(left_id, right_id, merged);
  }
  merges = std::move(pairs);
  return absl::OkStatus();
}

// A control token is no stand-in: it would let text end or structure the prompt.
void Tokenizer::State::FindByteIds() {
  const std::optional<int32_t> id = spec.unknown_id;
  if (id.has_value() && spec.kinds[*id] == Kind::kUnknown) unknown = *id;
  byte_ids.fill(-1);
  if (SpellsBytes(spec)) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = spellings.find(internal::ByteLevelSpelling(static_cast<uint8_t>(byte)));
      if (found != spellings.end()) byte_ids[byte] = found->second;
    }
    return;
  }
  for (size_t token = 0; token < spec.tokens.size(); ++token) {
    if (spec.kinds[token] != Kind::kByte) continue;
    int32_t& of_byte = byte_ids[ByteOfToken(spec.tokens[token])];
    if (of_byte < 0) of_byte = static_cast<int32_t>(token);
  }
}

void Tokenizer::State::FindEndIds() {
  const auto add = [&](int32_t id) {
    if (std::find(end_ids.begin(), end_ids.end(), id) == end_ids.end()) end_ids.push_back(id);
  };
  if (spec.eos_id.has_value()) add(*spec.eos_id);
  if (spec.eot_id.has_value()) add(*spec.eot_id);
  for (const int32_t id : spec.more_end_ids) add(id);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.kinds[id] != Kind::kControl) continue;
    for (const std::string_view text : kTurnEnds) {
      if (spec.tokens[id] == text) add(static_cast<int32_t>(id));
    }
  }
}

// Bytes by tokens of their own, all or none; else the unknown token. False if neither is there.
bool Tokenizer::State::SpellByBytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return byte_ids[static_cast<uint8_t>(byte)]; };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : bytes) ids.push_back(id_of(byte));
    return true;
  }
  if (unknown < 0) return false;
  if (!spec.fuses_unknown || ids.empty() || ids.back() != unknown) ids.push_back(unknown);
  return true;
}

// The tokens that a word is made of before anything is merged. False if something was left out.
bool Tokenizer::State::Spell(std::string_view word, std::vector<int32_t>& ids) const {
  bool all = true;
  const auto size = static_cast<int64_t>(word.size());
  for (int64_t i = 0; i < size;) {
    const int64_t begin = i;
    UChar32 code_point;
    if (SpellsBytes(spec)) {
      ++i;
    } else {
      U8_NEXT(word.data(), i, size, code_point);
    }
    const std::string_view symbol = word.substr(begin, i - begin);
    const auto found = SpellsBytes(spec) ? spellings.end() : spellings.find(symbol);
    if (found != spellings.end()) {
      ids.push_back(found->second);
    } else {
      all = SpellByBytes(symbol, ids) && all;
    }
  }
  return all;
}

void Tokenizer::State::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  if (spec.ignore_merges) {
    const auto whole =
        spellings.find(SpellsBytes(spec) ? internal::ToByteLevel(word) : std::string(word));
    if (whole != spellings.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  Spell(word, symbols);
  internal::ApplyMerges(*merges, symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

absl::Status Tokenizer::State::EncodeWords(std::string_view text, bool at_start,
                                           std::vector<int32_t>& ids) const {
  std::string changed;
  if (!spec.word_steps.empty()) {
    text = changed = internal::ApplyTextSteps(spec.word_steps, text, at_start);
  }
  std::vector<std::string_view> words;
  PACELINE_RETURN_IF_ERROR(pre_tokenizer.Split(text, words));
  for (std::string_view word : words) EncodeWord(word, ids);
  return absl::OkStatus();
}

// Calls `stretch(text, at_start)` for what lies between added tokens.
template <typename Stretch>
absl::Status CutAtAddedTokens(const AddedTokens& added, std::string_view text, bool at_start,
                              Stretch stretch, std::vector<int32_t>& ids) {
  size_t done = 0;
  while (const auto match = added.Find(text, done)) {
    PACELINE_RETURN_IF_ERROR(
        stretch(text.substr(done, match->begin - done), at_start && done == 0));
    ids.push_back(match->id);
    done = match->end;
  }
  return stretch(text.substr(done), at_start && done == 0);
}

absl::Status Tokenizer::State::EncodeStretch(std::string_view text, Specials specials,
                                             bool at_start, std::vector<int32_t>& ids) const {
  std::string changed;
  if (!spec.normalisers.empty()) {
    text = changed = internal::ApplyTextSteps(spec.normalisers, text, at_start);
  }
  return CutAtAddedTokens(
      AddedOf(specials).normalised, text, at_start,
      [&](std::string_view words, bool first) { return EncodeWords(words, first, ids); }, ids);
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  MakeTurnMarksControl(spec);
  PACELINE_ASSIGN_OR_RETURN(internal::PreTokenizer pre_tokenizer, MakePreTokenizer(spec));
  auto state = std::make_unique<State>(std::move(spec), std::move(pre_tokenizer));
  for (size_t id = 0; id < state->spec.tokens.size(); ++id) {
    state->AddToken(static_cast<int32_t>(id));
  }
  state->AddAddedTokens();
  state->FindByteIds();
  PACELINE_RETURN_IF_ERROR(state->AddMerges());
  state->FindEndIds();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

bool Tokenizer::CanSpell(std::string_view text) const {
  const std::string changed = internal::ApplyTextSteps(
      state_->spec.word_steps, internal::ApplyTextSteps(state_->spec.normalisers, text, true),
      true);
  std::vector<int32_t> ids;
  return state_->Spell(changed, ids);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       Specials specials) const {
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: expected at most 2^31 - 1 bytes, got ", text.size()));
  }
  std::vector<int32_t> ids;
  PACELINE_RETURN_IF_ERROR(CutAtAddedTokens(
      state_->AddedOf(specials).plain, text, /*at_start=*/true,
      [&](std::string_view stretch, bool at_start) {
        return state_->EncodeStretch(stretch, specials, at_start, ids);
      },
      ids));
  return ids;
}

std::vector<int32_t> Tokenizer::AddBos(std::vector<int32_t> ids) const {
  const std::optional<int32_t> bos_id = state_->spec.bos_id;
  if (state_->spec.add_bos && (ids.empty() || ids[0] != *bos_id)) ids.insert(ids.begin(), *bos_id);
  return ids;
}

std::string_view Tokenizer::Piece(int32_t id, bool show_control) const {
  if (id < 0 || id >= vocab_size()) return {};
  const Kind kind = state_->spec.kinds[id];
  if (kind == Kind::kUnused || (IsHidden(kind) && !show_control)) return {};
  return state_->pieces[id];
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool show_control) const {
  std::string bytes;
  for (int32_t id : ids) bytes += Piece(id, show_control);
  StreamDecoder decoder(state_->spec.drops_first_space);
  std::string text = decoder.Push(bytes);
  return text + decoder.Flush();
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(state_->spec.tokens.size()); }

bool Tokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && IsHidden(state_->spec.kinds[id]);
}

const std::vector<int32_t>& Tokenizer::end_ids() const { return state_->end_ids; }
const TokenizerSpec& Tokenizer::spec() const { return state_->spec; }

}  // namespace paceline
