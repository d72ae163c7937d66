// Reader of GGUF files: typed metadata and tensors, every number checked before it is used.
//
// Source: the GGUF specification, versions 2 and 3, little endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "models/weight_source.h"

namespace paceline {

// An array of a metadata entry: strings, or scalars that are read where they stand.
struct GgufArray {
  uint32_t type = 0;
  int64_t size = 0;
  std::vector<std::string_view> strings;  // [size] if the elements are strings.
  std::span<const uint8_t> scalars;       // Otherwise.

  bool has_strings() const;
  bool has_integers() const;
  int64_t Integer(int64_t i) const;  // Element i of an array that has_integers().
  double Number(int64_t i) const;    // Of one that has neither integers nor strings.
};

using GgufValue = std::variant<bool, int64_t, double, std::string_view, GgufArray>;

struct GgufEntry {
  GgufValue value;
  std::span<const uint8_t> bytes;  // The whole entry as it stands in the file, key included.
};

// A parsed file. Holds views into the bytes it was parsed from, which must outlive it.
class GgufFile {
 public:
  // Errors: kDataLoss naming the file, the part, what is expected and what came; kUnimplemented for
  // a version, byte order or tensor type that is not supported. Never allocates more than a few
  // times the size of `bytes`.
  static absl::StatusOr<GgufFile> Parse(std::span<const uint8_t> bytes, std::string name);

  const std::unordered_map<std::string_view, GgufEntry>& entries() const { return entries_; }
  const std::vector<std::string_view>& keys() const { return keys_; }  // In the file's order.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  const std::string& name() const { return name_; }
  int64_t alignment() const { return alignment_; }
  uint32_t version() const { return version_; }

  bool Has(std::string_view key) const { return entries_.contains(key); }

  // Typed values. kDataLoss naming the key if it is missing or of another type; `fallback` if it is
  // missing.
  absl::StatusOr<int64_t> Integer(std::string_view key) const;
  absl::StatusOr<int64_t> Integer(std::string_view key, int64_t fallback) const;
  absl::StatusOr<double> Number(std::string_view key) const;
  absl::StatusOr<double> Number(std::string_view key, double fallback) const;
  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string_view fallback) const;
  absl::StatusOr<const GgufArray*> Array(std::string_view key) const;

  // kDataLoss with the file's name in front: `part: expected ..., got ...`.
  absl::Status Damaged(std::string_view part, std::string_view expected,
                       std::string_view got) const;

 private:
  friend class GgufParser;

  template <typename T>
  absl::StatusOr<T> Value(std::string_view key, std::string_view type_name) const;

  std::string name_;
  uint32_t version_ = 0;
  int64_t alignment_ = 32;
  std::unordered_map<std::string_view, GgufEntry> entries_;
  std::vector<std::string_view> keys_;
  std::vector<TensorView> tensors_;
};

// A name from a file, fit for a message: escaped and shortened.
std::string PrintableName(std::string_view name);

}  // namespace paceline
