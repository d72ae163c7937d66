#include "models/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/gguf.h"
#include "models/json_reader.h"

namespace paceline {
namespace {

using Json = nlohmann::json;
using Event = nlohmann::detail::parse_event_t;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // The format's own limit.
constexpr int64_t kMostElements = int64_t{1} << 42;
constexpr size_t kMostDimensions = 4;
constexpr size_t kMostTensors = 1 << 16;

constexpr std::pair<std::string_view, BlockType> kTypes[] = {
    {"F32", BlockType::kF32}, {"F16", BlockType::kF16}, {"BF16", BlockType::kBF16}};

// Reads the header entry by entry while it is parsed, so that only one stands in memory as JSON.
class HeaderParser {
 public:
  HeaderParser(std::span<const uint8_t> data, std::string_view file) : data_(data), file_(file) {}

  absl::StatusOr<std::vector<TensorView>> Parse(std::span<const uint8_t> header) {
    const Json root = Json::parse(
        header.begin(), header.end(),
        [this](int depth, Event event, Json& value) { return Keep(depth, event, value); },
        /*allow_exceptions=*/false);
    PACELINE_RETURN_IF_ERROR(status_);
    if (!root.is_object()) return Damage("header", "a JSON object", "something else");
    PACELINE_RETURN_IF_ERROR(CheckPlaces());
    return std::move(tensors_);
  }

 private:
  absl::Status Damage(std::string_view part, std::string_view expected, std::string_view got) {
    return absl::DataLossError(absl::StrCat(file_, ": ", std::string(part), ": expected ",
                                            std::string(expected), ", got ", std::string(got)));
  }
  void Fail(std::string_view part, std::string_view expected, std::string_view got) {
    status_.Update(Damage(part, expected, got));
  }

  // Entries are objects of plain values and short arrays; they are read when they end.
  bool Keep(int depth, Event event, Json& value) {
    if (!status_.ok()) return false;
    if (depth == 0) return true;
    if (depth == 1 && event == Event::key) {
      name_ = value.get<std::string>();
      num_parts_ = 0;
      return true;
    }
    if (depth == 1 && event == Event::object_end) {
      if (name_ != "__metadata__") ReadEntry(value);
      return false;
    }
    const bool is_metadata = name_ == "__metadata__";
    const bool too_much = depth > 3 || (!is_metadata && ++num_parts_ > 32);
    if (too_much || (depth == 1 && event != Event::object_start)) {
      Fail(Tensor(), "dtype, shape and data_offsets", depth == 1 ? ShortJson(value) : "more");
      return false;
    }
    return !is_metadata || depth == 1;
  }

  std::string Tensor() const { return absl::StrCat("tensor ", PrintableName(name_)); }

  void ReadEntry(const Json& entry) {
    if (!names_.insert(name_).second) return Fail(Tensor(), "one of that name", "a second one");
    if (tensors_.size() == kMostTensors) {
      return Fail("header", absl::StrCat("at most ", kMostTensors, " tensors"), "more");
    }
    JsonReader reader(entry, absl::StrCat(file_, ": ", Tensor()), status_);
    TensorView tensor;
    tensor.name = name_;
    ReadType(reader, tensor.type);
    ReadShape(reader, tensor.shape);
    if (status_.ok()) ReadPlace(reader, tensor);
    tensors_.push_back(std::move(tensor));
  }

  void ReadType(JsonReader& reader, BlockType& type) {
    const std::string name = reader.Text({"dtype"});
    for (const auto& [known, known_type] : kTypes) {
      if (name == known) {
        type = known_type;
        return;
      }
    }
    reader.Refuse("dtype", absl::StrCat(ShortJson(name), " (F32, F16 and BF16 are)"));
  }

  void ReadShape(JsonReader& reader, std::vector<int64_t>& shape) {
    if (!reader.Has("shape")) return reader.Fail("shape", "an array", "none");
    const Json& sizes = reader.Array("shape");
    if (sizes.size() > kMostDimensions) {
      return reader.Fail("shape", absl::StrCat("at most ", kMostDimensions, " dimensions"),
                         absl::StrCat(sizes.size()));
    }
    int64_t elements = 1;
    for (const Json& size : sizes) {
      const bool fits = size.is_number_unsigned() && size.get<uint64_t>() >= 1 &&
                        size.get<uint64_t>() <= static_cast<uint64_t>(kMostElements / elements);
      if (!fits) return reader.Fail("shape", "1 to 2^42 elements", ShortJson(size));
      shape.push_back(size.get<int64_t>());
      elements *= shape.back();
    }
    if (shape.empty()) shape.push_back(1);
  }

  void ReadPlace(JsonReader& reader, TensorView& tensor) {
    const Json& range = reader.Array("data_offsets");
    const bool is_range =
        range.size() == 2 && range[0].is_number_unsigned() && range[1].is_number_unsigned();
    if (!is_range) return reader.Fail("data_offsets", "two places", ShortJson(range));
    const auto begin = range[0].get<uint64_t>();
    const auto end = range[1].get<uint64_t>();
    const auto size = static_cast<uint64_t>(BlockBytes(tensor.type, tensor.num_elements()));
    if (begin > end || end > data_.size()) {
      return reader.Fail("data_offsets", absl::StrCat("a range in [0, ", data_.size(), "]"),
                         absl::StrCat("[", begin, ", ", end, "]"));
    }
    if (end - begin != size) {
      return reader.Fail("data_offsets", absl::StrCat(size, " bytes, as the shape says"),
                         absl::StrCat(end - begin));
    }
    tensor.bytes = data_.subspan(begin, size);
  }

  // One behind the other, from the first byte to the last.
  absl::Status CheckPlaces() {
    std::stable_sort(
        tensors_.begin(), tensors_.end(),
        [](const TensorView& x, const TensorView& y) { return x.bytes.data() < y.bytes.data(); });
    const uint8_t* end = data_.data();
    for (const TensorView& tensor : tensors_) {
      if (tensor.bytes.data() != end) {
        return Damage(
            absl::StrCat("tensor ", PrintableName(tensor.name)),
            absl::StrCat("to begin at byte ", end - data_.data(), ", where the one before it ends"),
            absl::StrCat(tensor.bytes.data() - data_.data()));
      }
      end += tensor.bytes.size();
    }
    if (end == data_.data() + data_.size()) return absl::OkStatus();
    return Damage("header", absl::StrCat("tensors for all of ", data_.size(), " bytes"),
                  absl::StrCat(end - data_.data()));
  }

  std::span<const uint8_t> data_;
  std::string file_;
  absl::Status status_;
  std::string name_;  // Of the entry at hand.
  int num_parts_ = 0;
  std::unordered_set<std::string> names_;
  std::vector<TensorView> tensors_;
};

}  // namespace

absl::StatusOr<std::vector<TensorView>> ParseSafetensors(std::span<const uint8_t> bytes,
                                                         const std::string& file) {
  const auto damage = [&](std::string_view expected, uint64_t got) {
    return absl::DataLossError(
        absl::StrCat(file, ": header length: expected ", std::string(expected), ", got ", got));
  };
  if (bytes.size() < kLengthBytes) return damage("8 bytes for it", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const uint64_t most = std::min<uint64_t>(kMostHeaderBytes, bytes.size() - kLengthBytes);
  if (length > most) return damage(absl::StrCat("at most ", most), length);
  HeaderParser parser(bytes.subspan(kLengthBytes + length), file);
  return parser.Parse(bytes.subspan(kLengthBytes, length));
}

}  // namespace paceline
