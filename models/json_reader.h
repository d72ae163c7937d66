// JSON files of model folders, read with errors that name the file and the part.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace paceline {

// Of configuration files; what holds vocabularies and tensors is read part by part instead.
inline constexpr size_t kMostConfigBytes = size_t{3} << 20;

// The object that `bytes` hold. kDataLoss naming the file if they are no JSON, no object, or more
// than kMostConfigBytes.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::span<const uint8_t> bytes,
                                               std::string_view file);

// Reads an object's members. The first failure stays in `status`, which readers of parts share;
// what is read afterwards is a fallback. A member that is null counts as missing.
class JsonReader {
 public:
  using Names = std::initializer_list<const char*>;  // Spellings of one member; the first is named.

  // `part` is how messages call the object, such as "config.json: rope_parameters"; all are
  // borrowed.
  JsonReader(const nlohmann::json& object, std::string part, absl::Status& status)
      : object_(object), part_(std::move(part)), status_(status) {}

  bool Has(const char* name) const { return Find({name}).value != nullptr; }

  // Without a fallback a missing member is a failure.
  int32_t Size(Names names, std::optional<int32_t> fallback = std::nullopt);
  double Real(Names names, std::optional<double> fallback = std::nullopt);
  bool Flag(Names names, bool fallback);
  std::string Text(Names names, std::optional<std::string> fallback = std::nullopt);
  // An empty array if it is missing; an empty object likewise.
  const nlohmann::json& Array(const char* name);
  const nlohmann::json& Object(const char* name);

  // kDataLoss `part: name: expected ..., got ...`, and kUnimplemented for what is not computed.
  void Fail(std::string_view name, std::string_view expected, std::string_view got);
  void Refuse(std::string_view name, std::string_view got);
  // Refuses unless the member is missing or `allowed`.
  void RefuseUnless(const char* name, const nlohmann::json& allowed);

  const std::string& part() const { return part_; }
  absl::Status& status() { return status_; }

 private:
  struct Member {
    const char* name;
    const nlohmann::json* value;  // Null if missing.
  };
  Member Find(Names names) const;

  const nlohmann::json& object_;
  std::string part_;
  absl::Status& status_;
};

// A value as it fits into a message.
std::string ShortJson(const nlohmann::json& value);

}  // namespace paceline
