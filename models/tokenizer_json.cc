#include "models/tokenizer_json.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/json_reader.h"
#include "models/pre_tokenizer.h"
#include "models/tokenizer.h"

namespace paceline {
namespace {

using Json = nlohmann::json;
using Event = nlohmann::detail::parse_event_t;
using Kind = TokenizerSpec::TokenKind;

constexpr int64_t kMostTokens = int64_t{1} << 22;
constexpr int64_t kMostOtherParts = 100'000;  // Values outside of vocabulary, merges, added tokens.

struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;
  AddedOptions options;
};

// Takes vocabulary, merges and added tokens out of the file while it is parsed, so that they never
// stand in memory as JSON; the rest, which is small, is kept.
class FileParser {
 public:
  FileParser(std::string_view file) : file_(file) {}

  absl::Status Parse(std::span<const uint8_t> bytes) {
    rest_ = Json::parse(
        bytes.begin(), bytes.end(),
        [this](int depth, Event event, Json& value) { return Keep(depth, event, value); },
        /*allow_exceptions=*/false);
    PACELINE_RETURN_IF_ERROR(status_);
    if (rest_.is_object()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(file_, ": expected a JSON object, got something else"));
  }

  const Json& rest() const { return rest_; }
  std::vector<std::pair<std::string, int32_t>>& vocabulary() { return vocabulary_; }
  std::vector<TokenizerSpec::Merge>& merges() { return merges_; }
  std::vector<AddedToken>& added() { return added_; }
  bool has_vocabulary() const { return has_vocabulary_; }

 private:
  void Fail(std::string_view part, std::string_view expected, const Json& got) {
    status_.Update(
        absl::DataLossError(absl::StrCat(file_, ": ", std::string(part), ": expected ",
                                         std::string(expected), ", got ", ShortJson(got))));
  }

  // Depths count from 1 for the file's object. Containers are told of at their own depth less one.
  bool Keep(int depth, Event event, Json& value) {
    if (!status_.ok()) return false;
    if (event == Event::key && depth == 1) first_ = value.get<std::string>();
    if (event == Event::key && depth == 2) second_ = value.get<std::string>();
    if (first_ == "model" && second_ == "vocab" && depth >= 3)
      return OfVocabulary(depth, event, value);
    if (first_ == "model" && second_ == "merges" && depth >= 3)
      return OfMerges(depth, event, value);
    if (first_ == "added_tokens" && depth >= 2) return OfAddedTokens(depth, event, value);
    const bool holds =
        event == Event::value || event == Event::object_start || event == Event::array_start;
    if (holds && ++num_other_parts_ > kMostOtherParts) {
      Fail(first_,
           absl::StrCat("at most ", kMostOtherParts,
                        " parts besides vocabulary, merges and "
                        "added tokens"),
           value);
      return false;
    }
    if (first_ == "model" && second_ == "vocab" && depth == 2) {
      has_vocabulary_ |= event == Event::object_start;
    }
    return true;
  }

  bool OfVocabulary(int depth, Event event, Json& value) {
    if (depth > 3 || !has_vocabulary_) return false;  // A list: of another kind of model.
    if (event == Event::key) {
      third_ = value.get<std::string>();
    } else if (event == Event::value && IsId(value)) {
      vocabulary_.emplace_back(std::move(third_), value.get<int32_t>());
    } else {
      Fail(absl::StrCat("model.vocab: token ", ShortJson(third_)),
           absl::StrCat("an id in [0, ", kMostTokens, ")"), value);
    }
    return false;
  }

  static bool IsId(const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{kMostTokens};
  }

  // "left right", or ["left", "right"] one level down.
  bool OfMerges(int depth, Event event, Json& value) {
    const std::string part = absl::StrCat("model.merges: merge ", merges_.size());
    if (depth == 3 && event == Event::value && value.is_string()) {
      absl::StatusOr<TokenizerSpec::Merge> merge = ParseMerge(value.get_ref<const std::string&>());
      if (merge.ok()) {
        merges_.push_back(*std::move(merge));
      } else {
        Fail(part, "'left right'", value);
      }
    } else if (depth == 3 && event == Event::array_start) {
      pair_.clear();
    } else if (depth == 4 && event == Event::value && value.is_string() && pair_.size() < 2) {
      pair_.push_back(value.get<std::string>());
    } else if (depth == 3 && event == Event::array_end && pair_.size() == 2) {
      merges_.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    } else {
      Fail(part, "two texts", value);
    }
    return event == Event::array_start && depth == 3;
  }

  // An object each, with its values one level down; taken and dropped when it is complete.
  bool OfAddedTokens(int depth, Event event, Json& value) {
    if (depth == 2 && event == Event::object_end) {
      OfAddedToken(value);
      return false;
    }
    const bool starts = depth == 2 && event == Event::object_start;
    const bool inside = depth == 3 && (event == Event::key || event == Event::value);
    if (!starts && !inside) {
      Fail(absl::StrCat("added_tokens: ", added_.size()), "an object of plain values", value);
    }
    return starts || inside;
  }

  void OfAddedToken(const Json& object) {
    const std::string part = absl::StrCat(file_, ": added_tokens: ", added_.size());
    JsonReader reader(object, part, status_);
    AddedToken token;
    token.id = reader.Size({"id"});
    token.text = reader.Text({"content"});
    token.special = reader.Flag({"special"}, false);
    token.options = {token.id, reader.Flag({"normalized"}, !token.special),
                     reader.Flag({"single_word"}, false), reader.Flag({"lstrip"}, false),
                     reader.Flag({"rstrip"}, false)};
    if (token.id >= kMostTokens) {
      reader.Fail("id", absl::StrCat("an id in [0, ", kMostTokens, ")"), absl::StrCat(token.id));
    }
    added_.push_back(std::move(token));
  }

  std::string file_;
  absl::Status status_;
  Json rest_;
  std::string first_, second_, third_;  // Keys on the way to the value at hand.
  std::vector<std::string> pair_;
  int64_t num_other_parts_ = 0;
  bool has_vocabulary_ = false;
  std::vector<std::pair<std::string, int32_t>> vocabulary_;
  std::vector<TokenizerSpec::Merge> merges_;
  std::vector<AddedToken> added_;
};

// Turns the rest of the file into a spec.
class SpecReader {
 public:
  SpecReader(const Json& root, std::string file) : root_(root), file_(std::move(file)) {}

  TokenizerSpec& spec() { return spec_; }
  const absl::Status& status() const { return status_; }

  void ReadModel(bool has_vocabulary) {
    JsonReader file(root_, file_, status_);
    JsonReader model(file.Object("model"), file_ + ": model", status_);
    const std::string type = model.Text({"type"}, "BPE");  // Old files leave it out.
    if (type != "BPE") {
      model.Refuse("type", ShortJson(type));
    } else if (!has_vocabulary) {
      model.Fail("vocab", "an object of tokens and ids", "none");
    }
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      model.RefuseUnless(name, "");
    }
    model.RefuseUnless("dropout", 0.0);
    spec_.ignore_merges = model.Flag({"ignore_merges"}, false);
    spec_.fuses_unknown = model.Flag({"fuse_unk"}, false);
    byte_fallback_ = model.Flag({"byte_fallback"}, false);
    unknown_ = model.Text({"unk_token"}, "");
  }

  void ReadSteps() {
    ReadNormaliser(Part("normalizer"), "normalizer");
    ReadPreTokenizer(Part("pre_tokenizer"), "pre_tokenizer");
    spec_.model = byte_level_ ? "gpt2" : "llama";
    ReadDecoder(Part("decoder"), "decoder");
  }

  // The begin token, if the post-processor puts one in front of a text.
  void ReadPostProcessor() { ReadPostProcessor(Part("post_processor"), "post_processor"); }

  void SetTokens(std::vector<std::pair<std::string, int32_t>>& vocabulary,
                 std::vector<AddedToken>& added) {
    int64_t most = 0;
    for (const auto& [text, id] : vocabulary) most = std::max<int64_t>(most, id + 1);
    for (const AddedToken& token : added) most = std::max<int64_t>(most, token.id + 1);
    // A few ids may have no token; an id far beyond the others is a mistake.
    const auto count = static_cast<int64_t>(vocabulary.size() + added.size());
    if (most > 2 * count + 4096) {
      return Fail("model.vocab", absl::StrCat("ids near [0, ", count, ")"), absl::StrCat(most - 1));
    }
    spec_.tokens.resize(most);
    spec_.kinds.assign(most, Kind::kUnused);
    for (auto& [text, id] : vocabulary) {
      if (spec_.kinds[id] != Kind::kUnused) {
        return Fail(absl::StrCat("model.vocab: token ", ShortJson(text)), "an id of its own",
                    absl::StrCat(id));
      }
      spec_.kinds[id] = byte_fallback_ && IsByte(text) ? Kind::kByte : Kind::kNormal;
      if (text == unknown_) SetUnknown(id);
      spec_.tokens[id] = std::move(text);
    }
    for (AddedToken& token : added) SetAdded(token);
    if (!unknown_.empty() && !spec_.unknown_id) {
      Fail("model.unk_token", "a token of the vocabulary", ShortJson(unknown_));
    }
  }

 private:
  void Fail(std::string_view part, std::string_view expected, std::string_view got) {
    JsonReader(root_, file_, status_).Fail(part, expected, got);
  }

  // Null if the file has none.
  const Json& Part(const char* name) {
    static const Json& none = *new Json();
    const auto found = root_.find(name);
    return found == root_.end() ? none : *found;
  }

  // A step's object, its type, and how messages call it; of a sequence its steps, one by one.
  template <typename Read>
  void ForEachStep(const Json& step, const std::string& part, const char* list, Read read) {
    if (step.is_null() || !status_.ok()) return;
    if (!step.is_object()) return Fail(part, "an object", ShortJson(step));
    JsonReader reader(step, absl::StrCat(file_, ": ", part), status_);
    const std::string type = reader.Text({"type"});
    if (type != "Sequence") return read(type, reader);
    const Json& steps = reader.Array(list);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Json& inner = steps[i];
      // No file nests them; a hostile one could do so without end.
      if (inner.is_object() && inner.value("type", Json()) == "Sequence") {
        return Fail(part, "steps in one sequence", "a sequence in it");
      }
      ForEachStep(inner, absl::StrCat(part, ".", list, "[", i, "]"), list, read);
    }
  }

  void ReadNormaliser(const Json& step, const std::string& part) {
    using Step = TextStep::Kind;
    constexpr std::pair<const char*, Step> kForms[] = {
        {"NFC", Step::kNfc}, {"NFD", Step::kNfd}, {"NFKC", Step::kNfkc}, {"NFKD", Step::kNfkd}};
    ForEachStep(step, part, "normalizers", [&](const std::string& type, JsonReader& reader) {
      for (const auto& [name, form] : kForms) {
        if (type == name) return spec_.normalisers.push_back({form, "", ""});
      }
      if (type == "Replace") return AddReplace(reader, spec_.normalisers);
      if (type == "Prepend") {
        return spec_.normalisers.push_back({Step::kPrepend, "", reader.Text({"prepend"})});
      }
      reader.Refuse("type", ShortJson(type));
    });
  }

  static void AddReplace(JsonReader& reader, std::vector<TextStep>& steps) {
    JsonReader pattern(reader.Object("pattern"), reader.part() + ": pattern", reader.status());
    if (pattern.Has("Regex")) return pattern.Refuse("Regex", "a pattern to replace");
    steps.push_back({TextStep::Kind::kReplace, pattern.Text({"String"}), reader.Text({"content"})});
  }

  void ReadPreTokenizer(const Json& step, const std::string& part) {
    ForEachStep(step, part, "pretokenizers", [&](const std::string& type, JsonReader& reader) {
      if (type == "Split") return AddSplit(reader);
      if (type == "Digits") {
        const bool single = reader.Flag({"individual_digits"}, false);
        return spec_.splits.push_back({.pattern = single ? R"(\p{N})" : R"(\p{N}+)"});
      }
      if (type == "ByteLevel") return AddByteLevel(reader);
      if (type == "Metaspace") return AddMetaspace(reader);
      reader.Refuse("type", ShortJson(type));
    });
  }

  void AddSplit(JsonReader& reader) {
    using Matches = SplitRule::Matches;
    constexpr std::pair<const char*, Matches> kBehaviours[] = {
        {"Isolated", Matches::kIsolated},
        {"Removed", Matches::kRemoved},
        {"MergedWithPrevious", Matches::kWithPrevious},
        {"MergedWithNext", Matches::kWithNext},
        {"Contiguous", Matches::kContiguous}};
    JsonReader pattern(reader.Object("pattern"), reader.part() + ": pattern", status_);
    SplitRule rule;
    rule.literal = !pattern.Has("Regex");
    rule.pattern = pattern.Text({rule.literal ? "String" : "Regex"});
    rule.invert = reader.Flag({"invert"}, false);
    const std::string behaviour = reader.Text({"behavior"});
    for (const auto& [name, matches] : kBehaviours) {
      if (behaviour != name) continue;
      rule.matches = matches;
      return spec_.splits.push_back(std::move(rule));
    }
    reader.Refuse("behavior", ShortJson(behaviour));
  }

  // A prefix goes in front of what was cut so far: only text steps in front of all splits are
  // known.
  void AddPrefix(JsonReader& reader, TextStep step) {
    if (!spec_.splits.empty()) return reader.Refuse("prefix", "one behind a split");
    spec_.word_steps.push_back(std::move(step));
  }

  void AddByteLevel(JsonReader& reader) {
    byte_level_ = true;
    if (reader.Flag({"add_prefix_space"}, true)) {
      AddPrefix(reader, {TextStep::Kind::kPrependMissing, "", " "});
    }
    if (reader.Flag({"use_regex"}, true)) spec_.splits.push_back({.pattern = internal::kGpt2Words});
  }

  // "always", "first" or "never" puts the mark in front; older files have a flag.
  std::string PrependScheme(JsonReader& reader) {
    const bool prefix = reader.Flag({"add_prefix_space"}, true);
    const std::string scheme = reader.Text({"prepend_scheme"}, prefix ? "always" : "never");
    if (scheme == "always" || scheme == "first" || scheme == "never") return scheme;
    reader.Fail("prepend_scheme", "always, first or never", ShortJson(scheme));
    return "never";
  }

  void AddMetaspace(JsonReader& reader) {
    const std::string mark = reader.Text({"replacement"});
    const std::string scheme = PrependScheme(reader);
    if (!spec_.splits.empty()) return reader.Refuse("type", "Metaspace behind a split");
    spec_.word_steps.push_back({TextStep::Kind::kReplace, " ", mark});
    if (scheme != "never") {
      spec_.word_steps.push_back({TextStep::Kind::kPrependMissing, "", mark, scheme == "first"});
    }
    if (reader.Flag({"split"}, true)) {
      spec_.splits.push_back(
          {.pattern = mark, .literal = true, .matches = SplitRule::Matches::kWithNext});
    }
  }

  // What has an effect: the mark of spaces, and the first space that is dropped.
  void ReadDecoder(const Json& step, const std::string& part) {
    ForEachStep(step, part, "decoders", [&](const std::string& type, JsonReader& reader) {
      if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return;
      if (type == "Metaspace") {
        spec_.space_mark = reader.Text({"replacement"});
        spec_.drops_first_space = PrependScheme(reader) != "never";
        return;
      }
      if (type == "Strip") {
        if (reader.Text({"content"}) != " " || reader.Size({"stop"}, 0) != 0 ||
            reader.Size({"start"}, 0) > 1) {
          return reader.Refuse("content", "another strip than of one space in front");
        }
        spec_.drops_first_space = reader.Size({"start"}, 0) == 1;
        return;
      }
      if (type == "Replace") {
        std::vector<TextStep> steps;
        AddReplace(reader, steps);
        if (steps.empty()) return;
        if (steps[0].to != " ") return reader.Refuse("content", ShortJson(steps[0].to));
        spec_.space_mark = steps[0].from;
        return;
      }
      reader.Refuse("type", ShortJson(type));
    });
  }

  void ReadPostProcessor(const Json& step, const std::string& part) {
    ForEachStep(step, part, "processors", [&](const std::string& type, JsonReader& reader) {
      if (type == "ByteLevel") return;  // Of offsets alone.
      if (type != "TemplateProcessing") return reader.Refuse("type", ShortJson(type));
      const Json& single = reader.Array("single");
      bool text_seen = false;
      for (const Json& item : single) {
        if (!item.is_object()) return reader.Fail("single", "objects", ShortJson(item));
        JsonReader entry(item, reader.part() + ": single", status_);
        if (!entry.Has("SpecialToken")) {
          text_seen = true;
          continue;
        }
        JsonReader special(entry.Object("SpecialToken"), entry.part() + ": SpecialToken", status_);
        const std::string text = special.Text({"id"});
        if (text_seen) return special.Refuse("id", "a token behind the text");
        if (spec_.add_bos) return special.Refuse("id", "a second token in front of the text");
        SetBegin(text, special);
      }
    });
  }

  void SetBegin(const std::string& text, JsonReader& reader) {
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (spec_.tokens[id] != text || spec_.kinds[id] == Kind::kUnused) continue;
      spec_.bos_id = static_cast<int32_t>(id);
      spec_.add_bos = true;
      return;
    }
    reader.Fail("id", "a token of the vocabulary", ShortJson(text));
  }

  static bool IsByte(const std::string& text) {
    return text.size() == 6 && text.starts_with("<0x") && text.back() == '>' &&
           std::all_of(text.begin() + 3, text.end() - 1,
                       [](unsigned char c) { return std::isxdigit(c) != 0; });
  }

  void SetUnknown(int32_t id) {
    spec_.unknown_id = id;
    spec_.kinds[id] = Kind::kUnknown;
  }

  void SetAdded(AddedToken& token) {
    Kind& kind = spec_.kinds[token.id];
    if (kind != Kind::kUnused && spec_.tokens[token.id] != token.text) {
      return Fail(absl::StrCat("added_tokens: ", ShortJson(token.text)), "an id of its own",
                  absl::StrCat(token.id, ", which is ", ShortJson(spec_.tokens[token.id])));
    }
    kind = token.special ? Kind::kControl : Kind::kUserDefined;
    if (token.text == unknown_) SetUnknown(token.id);
    const AddedOptions& options = token.options;
    if (options.normalised || options.single_word || options.takes_left || options.takes_right) {
      spec_.added.push_back(options);
    }
    spec_.tokens[token.id] = std::move(token.text);
  }

  const Json& root_;
  std::string file_;
  absl::Status status_;
  TokenizerSpec spec_;
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  std::string unknown_;
};

}  // namespace

absl::StatusOr<TokenizerSpec> TokenizerFromJson(std::span<const uint8_t> bytes,
                                                std::string_view file) {
  FileParser parser(file);
  PACELINE_RETURN_IF_ERROR(parser.Parse(bytes));
  SpecReader reader(parser.rest(), std::string(file));
  reader.ReadModel(parser.has_vocabulary());
  reader.ReadSteps();
  PACELINE_RETURN_IF_ERROR(reader.status());
  reader.SetTokens(parser.vocabulary(), parser.added());
  reader.ReadPostProcessor();
  PACELINE_RETURN_IF_ERROR(reader.status());
  reader.spec().merges = std::move(parser.merges());
  return std::move(reader.spec());
}

}  // namespace paceline
