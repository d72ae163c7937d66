#include "models/json_reader.h"

#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostShown = 64;

absl::Status DataLoss(std::string_view file, std::string_view expected, std::string_view got) {
  return absl::DataLossError(absl::StrCat(std::string(file), ": expected ", std::string(expected),
                                          ", got ", std::string(got)));
}

}  // namespace

std::string ShortJson(const Json& value) {
  if (value.is_object()) return absl::StrCat("an object of ", value.size());
  if (value.is_array()) return absl::StrCat("an array of ", value.size());
  std::string text = value.is_string() ? absl::CHexEscape(value.get_ref<const std::string&>())
                                       : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "...";
  return value.is_string() ? absl::StrCat("'", text, "'") : text;
}

absl::StatusOr<Json> ParseJsonObject(std::span<const uint8_t> bytes, std::string_view file) {
  if (bytes.size() > kMostConfigBytes) {
    return DataLoss(file, absl::StrCat("at most ", kMostConfigBytes, " bytes"),
                    absl::StrCat(bytes.size()));
  }
  Json value = Json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return DataLoss(file, "JSON", "something else");
  if (!value.is_object()) return DataLoss(file, "a JSON object", ShortJson(value));
  return value;
}

JsonReader::Member JsonReader::Find(Names names) const {
  for (const char* name : names) {
    const auto found = object_.find(name);
    if (found != object_.end() && !found->is_null()) return {name, &*found};
  }
  return {*names.begin(), nullptr};
}

void JsonReader::Fail(std::string_view name, std::string_view expected, std::string_view got) {
  status_.Update(DataLoss(absl::StrCat(part_, ": ", std::string(name)), expected, got));
}

void JsonReader::Refuse(std::string_view name, std::string_view got) {
  status_.Update(absl::UnimplementedError(
      absl::StrCat(part_, ": ", std::string(name), ": ", std::string(got), " is not supported")));
}

void JsonReader::RefuseUnless(const char* name, const Json& allowed) {
  const Member member = Find({name});
  if (member.value != nullptr && *member.value != allowed) Refuse(name, ShortJson(*member.value));
}

int32_t JsonReader::Size(Names names, std::optional<int32_t> fallback) {
  const auto [name, value] = Find(names);
  if (value == nullptr && fallback) return *fallback;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // Unsigned numbers beyond int64 would wrap around.
  const bool fits = value != nullptr && value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= uint64_t{kMost}) &&
                    value->get<int64_t>() >= 0 && value->get<int64_t>() <= kMost;
  if (fits) return value->get<int32_t>();
  Fail(name, "a number in [0, 2^31)", value ? ShortJson(*value) : "none");
  return 0;
}

double JsonReader::Real(Names names, std::optional<double> fallback) {
  const auto [name, value] = Find(names);
  if (value == nullptr && fallback) return *fallback;
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value != nullptr && value->is_number() && std::abs(value->get<double>()) <= kMost) {
    return value->get<double>();
  }
  Fail(name, "a number", value ? ShortJson(*value) : "none");
  return 0;
}

bool JsonReader::Flag(Names names, bool fallback) {
  const auto [name, value] = Find(names);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, "true or false", ShortJson(*value));
  return fallback;
}

std::string JsonReader::Text(Names names, std::optional<std::string> fallback) {
  const auto [name, value] = Find(names);
  if (value == nullptr && fallback) return *std::move(fallback);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  Fail(name, "a text", value ? ShortJson(*value) : "none");
  return "";
}

const Json& JsonReader::Array(const char* name) {
  static const Json& empty = *new Json(Json::array());
  const Json* value = Find({name}).value;
  if (value == nullptr || value->is_array()) return value == nullptr ? empty : *value;
  Fail(name, "an array", ShortJson(*value));
  return empty;
}

const Json& JsonReader::Object(const char* name) {
  static const Json& empty = *new Json(Json::object());
  const Json* value = Find({name}).value;
  if (value == nullptr || value->is_object()) return value == nullptr ? empty : *value;
  Fail(name, "an object", ShortJson(*value));
  return empty;
}

}  // namespace paceline
