#include "models/tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/added_tokens.h"
#include "models/byte_level.h"
#include "models/merger.h"
#include "models/pre_tokenizer.h"

namespace paceline {
namespace {

using Kind = TokenizerSpec::TokenKind;
using internal::AddedTokens;

// Ids by spelling, as the file writes it.
using Spellings = absl::flat_hash_map<std::string_view, int32_t>;

// Kinds that are written out only where control tokens are asked for.
bool IsHidden(Kind kind) { return kind == Kind::kControl || kind == Kind::kUnknown; }

// Kinds that text can turn into by merging.
bool IsText(Kind kind) { return kind == Kind::kNormal || kind == Kind::kUserDefined; }

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
    if (spec.kinds[id] == Kind::kByte) {
      return absl::UnimplementedError(absl::StrCat(
          "tokenizer kind of token ", id, ": byte tokens (6) are not known in byte-level BPE"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(
        absl::StrCat("tokenizer model: expected gpt2 (byte-level BPE), got '", spec.model, "'"));
  }
  PACELINE_RETURN_IF_ERROR(CheckTokens(spec));
  return CheckIds(spec);
}

absl::StatusOr<int32_t> TokenOfMerge(const Spellings& spellings, size_t rank,
                                     std::string_view spelling) {
  const auto found = spellings.find(spelling);
  if (found == spellings.end()) {
    return Invalid(absl::StrCat("merge ", rank), "known text tokens",
                   absl::StrCat("'", std::string(spelling), "'"));
  }
  return found->second;
}

absl::Status AddMerge(const TokenizerSpec& spec, const Spellings& spellings, size_t rank,
                      internal::Merges& merges) {
  const std::string_view merge = spec.merges[rank];
  const size_t space = merge.find(' ');
  if (space == merge.npos || space == 0 || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != merge.npos) {
    return Invalid(absl::StrCat("merge ", rank), "'left right'",
                   absl::StrCat("'", std::string(merge), "'"));
  }
  const std::string_view left = merge.substr(0, space);
  const std::string_view right = merge.substr(space + 1);
  const std::string joined = absl::StrCat(std::string(left), std::string(right));
  PACELINE_ASSIGN_OR_RETURN(const int32_t left_id, TokenOfMerge(spellings, rank, left));
  PACELINE_ASSIGN_OR_RETURN(const int32_t right_id, TokenOfMerge(spellings, rank, right));
  PACELINE_ASSIGN_OR_RETURN(const int32_t merged, TokenOfMerge(spellings, rank, joined));
  merges.Add(left_id, right_id, merged);
  return absl::OkStatus();
}

}  // namespace

struct Tokenizer::State {
  State(TokenizerSpec the_spec, internal::PreTokenizer the_pre_tokenizer)
      : spec(std::move(the_spec)), pre_tokenizer(std::move(the_pre_tokenizer)) {}

  void AddToken(int32_t id);
  absl::Status AddMerges();
  void FindByteIds();
  void FindEndIds();
  absl::Status EncodeText(std::string_view text, std::vector<int32_t>& ids) const;
  absl::Status EncodeWord(std::string_view word, std::vector<int32_t>& ids) const;

  const TokenizerSpec spec;
  internal::PreTokenizer pre_tokenizer;
  internal::Merges merges;
  Spellings spellings;                // Of text tokens; views of `spec`.
  std::array<int32_t, 256> byte_ids;  // -1: left out.
  std::vector<std::string> pieces;    // [V]
  AddedTokens all_added;              // Control and user-defined tokens.
  AddedTokens user_defined;
  std::vector<int32_t> end_ids;
};

void Tokenizer::State::AddToken(int32_t id) {
  const std::string& spelling = spec.tokens[id];
  const Kind kind = spec.kinds[id];
  if (IsText(kind)) spellings.try_emplace(spelling, id);
  if (kind == Kind::kControl || kind == Kind::kUserDefined) all_added.Add(spelling, id);
  if (kind == Kind::kUserDefined) user_defined.Add(spelling, id);
  // Added tokens are written as they are. So are, by common practice, pieces outside of the
  // alphabet.
  pieces.push_back(kind == Kind::kNormal ? internal::FromByteLevel(spelling).value_or(spelling)
                                         : spelling);
}

absl::Status Tokenizer::State::AddMerges() {
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    PACELINE_RETURN_IF_ERROR(AddMerge(spec, spellings, rank, merges));
  }
  return absl::OkStatus();
}

// A control token is no stand-in: it would let text end or structure the prompt.
void Tokenizer::State::FindByteIds() {
  const std::optional<int32_t> unknown = spec.unknown_id;
  const bool has_unknown = unknown.has_value() && spec.kinds[*unknown] == Kind::kUnknown;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = spellings.find(internal::ByteLevelSpelling(static_cast<uint8_t>(byte)));
    byte_ids[byte] = found != spellings.end() ? found->second : has_unknown ? *unknown : -1;
  }
}

void Tokenizer::State::FindEndIds() {
  if (spec.eos_id.has_value()) end_ids.push_back(*spec.eos_id);
  if (spec.eot_id.has_value() && spec.eot_id != spec.eos_id) end_ids.push_back(*spec.eot_id);
}

absl::Status Tokenizer::State::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  if (spec.ignore_merges) {
    const auto whole = spellings.find(internal::ToByteLevel(word));
    if (whole != spellings.end()) {
      ids.push_back(whole->second);
      return absl::OkStatus();
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  for (char byte : word) {
    const int32_t id = byte_ids[static_cast<uint8_t>(byte)];
    if (id >= 0) symbols.push_back(id);
  }
  merges.Apply(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  return absl::OkStatus();
}

absl::Status Tokenizer::State::EncodeText(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<std::string_view> words;
  PACELINE_RETURN_IF_ERROR(pre_tokenizer.Split(text, words));
  for (std::string_view word : words) PACELINE_RETURN_IF_ERROR(EncodeWord(word, ids));
  return absl::OkStatus();
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  PACELINE_RETURN_IF_ERROR(CheckSpec(spec));
  MakeTurnMarksControl(spec);
  PACELINE_ASSIGN_OR_RETURN(internal::PreTokenizer pre_tokenizer,
                            internal::PreTokenizer::Create(spec.pre));
  auto state = std::make_unique<State>(std::move(spec), std::move(pre_tokenizer));
  for (size_t id = 0; id < state->spec.tokens.size(); ++id) {
    state->AddToken(static_cast<int32_t>(id));
  }
  state->FindByteIds();
  PACELINE_RETURN_IF_ERROR(state->AddMerges());
  state->FindEndIds();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(state)));
}

bool Tokenizer::CanSpell(std::string_view text) const {
  return std::all_of(text.begin(), text.end(), [&](char byte) {
    return state_->byte_ids[static_cast<uint8_t>(byte)] >= 0;
  });
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       Specials specials) const {
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: expected at most 2^31 - 1 bytes, got ", text.size()));
  }
  const AddedTokens& added =
      specials == Specials::kParse ? state_->all_added : state_->user_defined;
  std::vector<int32_t> ids;
  size_t done = 0;
  while (const auto match = added.Find(text, done)) {
    PACELINE_RETURN_IF_ERROR(state_->EncodeText(text.substr(done, match->begin - done), ids));
    ids.push_back(match->id);
    done = match->end;
  }
  PACELINE_RETURN_IF_ERROR(state_->EncodeText(text.substr(done), ids));
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
  StreamDecoder decoder;
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
