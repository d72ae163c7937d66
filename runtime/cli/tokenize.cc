#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "models/weight_source.h"
#include "runtime/cli/commands.h"
#include "runtime/cli/output.h"
#include "runtime/cli/prompts.h"
#include "runtime/report.h"

namespace paceline::cli {
namespace {

std::string PieceText(const Tokenizer& tokenizer, int32_t id) {
  return std::string(tokenizer.Piece(id, /*show_control=*/true));
}

std::string AsJson(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json json = {{"ids", ids}, {"pieces", Json::array()}};
  for (int32_t id : ids) json["pieces"].push_back(PieceText(tokenizer, id));
  return JsonText(json) + "\n";
}

std::string AsLines(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string lines;
  for (int32_t id : ids) {
    absl::StrAppend(&lines, id, "\t\"", absl::Utf8SafeCEscape(PieceText(tokenizer, id)), "\"\n");
  }
  return lines;
}

absl::Status Tokenize(TokenizeOptions& options) {
  PACELINE_RETURN_IF_ERROR(ResolveModel(options.model));
  if (options.ids_only && options.json) {
    return absl::InvalidArgumentError("--ids: expected --ids or --json, got both");
  }
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> weights, OpenModel(options.model));
  PACELINE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Create(weights->tokenizer()));
  const std::string text = options.text == "-" ? ReadStandardInput() : options.text;
  if (!tokenizer->CanSpell(text)) {
    Note("note: bytes that the vocabulary cannot spell are left out\n");
  }
  PACELINE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      tokenizer->Encode(text, options.no_specials ? Tokenizer::Specials::kPlainText
                                                  : Tokenizer::Specials::kParse));
  Output out;
  if (options.json) {
    out.Write(AsJson(*tokenizer, ids));
  } else {
    out.Write(options.ids_only ? absl::StrJoin(ids, ",") + "\n" : AsLines(*tokenizer, ids));
  }
  return out.status();
}

}  // namespace

int RunTokenize(TokenizeOptions options) { return ReportStatus(Tokenize(options)); }

}  // namespace paceline::cli
