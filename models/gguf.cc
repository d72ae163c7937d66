#include "models/gguf.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr uint32_t kMagic = 0x46554747;         // "GGUF"
constexpr uint32_t kSwappedMagic = 0x47475546;  // of a big-endian file
constexpr size_t kMaxShownName = 64;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr int64_t kMaxElements = int64_t{1} << 42;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxNames = 1 << 16;  // Of tensors, and of keys; real files have hundreds.

// Type ids of metadata values.
enum : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Bytes of a scalar type; 0 for types that are none.
size_t ScalarSize(uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    case kUint64:
    case kInt64:
    case kFloat64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool IsFloat(uint32_t type) { return type == kFloat32 || type == kFloat64; }

double LoadFloat(uint32_t type, const uint8_t* bytes) {
  return type == kFloat32 ? static_cast<double>(Load<float>(bytes)) : Load<double>(bytes);
}

int64_t LoadInteger(uint32_t type, const uint8_t* bytes) {
  switch (type) {
    case kUint8:
    case kBool:
      return Load<uint8_t>(bytes);
    case kInt8:
      return Load<int8_t>(bytes);
    case kUint16:
      return Load<uint16_t>(bytes);
    case kInt16:
      return Load<int16_t>(bytes);
    case kUint32:
      return Load<uint32_t>(bytes);
    case kInt32:
      return Load<int32_t>(bytes);
    case kUint64:  // Beyond int64: no count or id of ours, so the largest will be refused as well.
      return static_cast<int64_t>(
          std::min<uint64_t>(Load<uint64_t>(bytes), std::numeric_limits<int64_t>::max()));
    default:
      return Load<int64_t>(bytes);
  }
}

}  // namespace

bool GgufArray::has_strings() const { return type == kString; }

bool GgufArray::has_integers() const { return !has_strings() && !IsFloat(type); }

int64_t GgufArray::Integer(int64_t i) const {
  return LoadInteger(type, scalars.data() + i * static_cast<int64_t>(ScalarSize(type)));
}

double GgufArray::Number(int64_t i) const {
  return LoadFloat(type, scalars.data() + i * static_cast<int64_t>(ScalarSize(type)));
}

std::string PrintableName(std::string_view name) {
  const std::string_view shown = name.substr(0, kMaxShownName);
  return absl::StrCat("'", absl::CHexEscape(std::string(shown)),
                      shown.size() < name.size() ? "..." : "", "'");
}

// Reads front to back. Every read is checked against what is left.
class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string name) : bytes_(bytes) {
    file_.name_ = std::move(name);
  }

  absl::StatusOr<GgufFile> Parse() {
    PACELINE_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < num_entries_; ++i) PACELINE_RETURN_IF_ERROR(ReadEntry(i));
    PACELINE_RETURN_IF_ERROR(ReadAlignment());
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      PACELINE_RETURN_IF_ERROR(ReadTensor(i, offsets));
    }
    PACELINE_RETURN_IF_ERROR(PlaceTensors(offsets));
    PACELINE_RETURN_IF_ERROR(CheckOverlap());
    return std::move(file_);
  }

 private:
  size_t Left() const { return bytes_.size() - place_; }

  absl::Status Cut(std::string_view part, uint64_t needed) const {
    return file_.Damaged(part, absl::StrCat(needed, " more bytes"),
                         absl::StrCat(Left(), " before the end of the file"));
  }

  template <typename T>
  absl::Status Read(std::string_view part, T* value) {
    if (Left() < sizeof(T)) return Cut(part, sizeof(T));
    *value = Load<T>(bytes_.data() + place_);
    place_ += sizeof(T);
    return absl::OkStatus();
  }

  absl::Status ReadString(std::string_view part, std::string_view* text) {
    uint64_t length = 0;
    PACELINE_RETURN_IF_ERROR(Read(part, &length));
    if (length > Left()) return Cut(part, length);
    *text = {reinterpret_cast<const char*>(bytes_.data()) + place_, static_cast<size_t>(length)};
    place_ += length;
    return absl::OkStatus();
  }

  absl::Status ReadCount(std::string_view part, uint64_t* count) {
    PACELINE_RETURN_IF_ERROR(Read(part, count));
    if (*count <= kMaxNames) return absl::OkStatus();
    return file_.Damaged(part, absl::StrCat("at most ", kMaxNames), absl::StrCat(*count));
  }

  absl::Status ReadHeader() {
    uint32_t magic = 0;
    PACELINE_RETURN_IF_ERROR(Read("magic", &magic));
    if (magic != kMagic && magic != kSwappedMagic) {
      return file_.Damaged("magic", "GGUF", absl::StrCat("0x", absl::Hex(magic)));
    }
    PACELINE_RETURN_IF_ERROR(Read("version", &file_.version_));
    if (magic == kSwappedMagic || file_.version_ < 2 || file_.version_ > 3) {
      return absl::UnimplementedError(absl::StrCat(
          file_.name_, ": version: expected 2 or 3, little endian, got ", file_.version_));
    }
    PACELINE_RETURN_IF_ERROR(ReadCount("tensor count", &num_tensors_));
    return ReadCount("metadata count", &num_entries_);
  }

  absl::Status ReadEntry(uint64_t index) {
    const size_t start = place_;
    const std::string part = absl::StrCat("metadata entry ", index);
    std::string_view key;
    PACELINE_RETURN_IF_ERROR(ReadString(part, &key));
    const std::string named = absl::StrCat("key ", PrintableName(key));
    uint32_t type = 0;
    PACELINE_RETURN_IF_ERROR(Read(named, &type));
    GgufValue value;
    PACELINE_RETURN_IF_ERROR(ReadValue(named, type, &value));
    GgufEntry entry{std::move(value), bytes_.subspan(start, place_ - start)};
    if (!file_.entries_.emplace(key, std::move(entry)).second) {
      return file_.Damaged(named, "one entry", "a second one");
    }
    file_.keys_.push_back(key);
    return absl::OkStatus();
  }

  absl::Status ReadValue(std::string_view part, uint32_t type, GgufValue* value) {
    if (type == kString) {
      std::string_view text;
      PACELINE_RETURN_IF_ERROR(ReadString(part, &text));
      *value = text;
      return absl::OkStatus();
    }
    if (type == kArray) return ReadArray(part, value);
    const size_t size = ScalarSize(type);
    if (size == 0) return file_.Damaged(part, "a value type in [0, 12]", absl::StrCat(type));
    if (Left() < size) return Cut(part, size);
    const uint8_t* from = bytes_.data() + place_;
    place_ += size;
    if (IsFloat(type)) {
      *value = LoadFloat(type, from);
    } else if (type == kBool) {
      *value = *from != 0;
    } else {
      *value = LoadInteger(type, from);
    }
    return absl::OkStatus();
  }

  absl::Status ReadArray(std::string_view part, GgufValue* value) {
    GgufArray array;
    PACELINE_RETURN_IF_ERROR(Read(part, &array.type));
    const size_t size = array.type == kString ? sizeof(uint64_t) : ScalarSize(array.type);
    if (size == 0) {
      return file_.Damaged(part, "an array of scalars or strings",
                           absl::StrCat("type ", array.type));
    }
    uint64_t count = 0;
    PACELINE_RETURN_IF_ERROR(Read(part, &count));
    if (count > Left() / size) {  // Of what is left behind the count itself.
      return file_.Damaged(part, absl::StrCat("at most ", Left() / size, " elements"),
                           absl::StrCat(count));
    }
    array.size = static_cast<int64_t>(count);
    if (array.type == kString) {
      PACELINE_RETURN_IF_ERROR(ReadStrings(part, count, &array.strings));
    } else {
      array.scalars = bytes_.subspan(place_, count * size);
      place_ += array.scalars.size();
    }
    *value = std::move(array);
    return absl::OkStatus();
  }

  absl::Status ReadStrings(std::string_view part, uint64_t count,
                           std::vector<std::string_view>* strings) {
    strings->resize(count);
    for (std::string_view& text : *strings) PACELINE_RETURN_IF_ERROR(ReadString(part, &text));
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    PACELINE_ASSIGN_OR_RETURN(file_.alignment_, file_.Integer("general.alignment", 32));
    const int64_t alignment = file_.alignment_;
    if (alignment > 0 && alignment <= kMaxAlignment && (alignment & (alignment - 1)) == 0) {
      return absl::OkStatus();
    }
    return file_.Damaged("general.alignment", absl::StrCat("a power of two up to ", kMaxAlignment),
                         absl::StrCat(alignment));
  }

  absl::Status ReadTensor(uint64_t index, std::vector<uint64_t>& offsets) {
    std::string_view name;
    PACELINE_RETURN_IF_ERROR(ReadString(absl::StrCat("tensor ", index), &name));
    const std::string part = absl::StrCat("tensor ", PrintableName(name));
    if (!names_.insert(name).second) return file_.Damaged(part, "one of that name", "a second one");
    TensorView tensor;
    tensor.name = std::string(name);
    PACELINE_RETURN_IF_ERROR(ReadShape(part, tensor.shape));
    uint32_t type = 0;
    PACELINE_RETURN_IF_ERROR(Read(part, &type));
    const absl::StatusOr<BlockType> block_type = BlockTypeFromGguf(type);
    if (!block_type.ok()) {
      return absl::UnimplementedError(
          absl::StrCat(file_.name_, ": ", part, ": ", block_type.status().message()));
    }
    tensor.type = *block_type;
    if (tensor.shape.back() % BlockElements(tensor.type) != 0) {
      return file_.Damaged(part,
                           absl::StrCat("rows of whole ", BlockTypeName(tensor.type), " blocks"),
                           absl::StrCat(tensor.shape.back(), " columns"));
    }
    offsets.push_back(0);
    PACELINE_RETURN_IF_ERROR(Read(part, &offsets.back()));
    file_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Dimensions stand innermost first in the file.
  absl::Status ReadShape(std::string_view part, std::vector<int64_t>& shape) {
    uint32_t dimensions = 0;
    PACELINE_RETURN_IF_ERROR(Read(part, &dimensions));
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      return file_.Damaged(part, absl::StrCat("1 to ", kMaxDimensions, " dimensions"),
                           absl::StrCat(dimensions));
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dimensions; ++i) {
      uint64_t size = 0;
      PACELINE_RETURN_IF_ERROR(Read(part, &size));
      if (size < 1 || size > kMaxElements / elements) {
        return file_.Damaged(part, "a shape of 1 to 2^42 elements",
                             absl::StrCat("dimension ", i, " of ", size));
      }
      elements *= size;
      shape.insert(shape.begin(), static_cast<int64_t>(size));
    }
    return absl::OkStatus();
  }

  // Data begins at the first aligned place behind the tensor list.
  absl::Status PlaceTensors(const std::vector<uint64_t>& offsets) {
    const auto alignment = static_cast<size_t>(file_.alignment_);
    const size_t start = (place_ + alignment - 1) / alignment * alignment;
    const size_t room = start <= bytes_.size() ? bytes_.size() - start : 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      TensorView& tensor = file_.tensors_[i];
      const std::string part = absl::StrCat("tensor ", PrintableName(tensor.name));
      const auto size = static_cast<uint64_t>(BlockBytes(tensor.type, tensor.num_elements()));
      if (offsets[i] % alignment != 0) {
        return file_.Damaged(part, absl::StrCat("an offset aligned to ", alignment),
                             absl::StrCat(offsets[i]));
      }
      if (offsets[i] > room || size > room - offsets[i]) {
        return file_.Damaged(part,
                             absl::StrCat("data within the ", room, " bytes of the file's data"),
                             absl::StrCat("offset ", offsets[i], ", size ", size));
      }
      tensor.bytes = bytes_.subspan(start + offsets[i], size);
    }
    return absl::OkStatus();
  }

  // Tensors never share bytes; a file in which they do could be sliced into a far larger one.
  absl::Status CheckOverlap() const {
    std::vector<const TensorView*> sorted;
    for (const TensorView& tensor : file_.tensors_) sorted.push_back(&tensor);
    std::sort(sorted.begin(), sorted.end(), [](const TensorView* left, const TensorView* right) {
      return left->bytes.data() < right->bytes.data();
    });
    for (size_t i = 1; i < sorted.size(); ++i) {
      const TensorView& before = *sorted[i - 1];
      if (sorted[i]->bytes.data() >= before.bytes.data() + before.bytes.size()) continue;
      return file_.Damaged(absl::StrCat("tensor ", PrintableName(sorted[i]->name)),
                           "bytes of its own",
                           absl::StrCat("some of tensor ", PrintableName(before.name)));
    }
    return absl::OkStatus();
  }

  std::span<const uint8_t> bytes_;
  size_t place_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_entries_ = 0;
  std::unordered_set<std::string_view> names_;
  GgufFile file_;
};

absl::StatusOr<GgufFile> GgufFile::Parse(std::span<const uint8_t> bytes, std::string name) {
  return GgufParser(bytes, std::move(name)).Parse();
}

absl::Status GgufFile::Damaged(std::string_view part, std::string_view expected,
                               std::string_view got) const {
  return absl::DataLossError(absl::StrCat(name_, ": ", std::string(part), ": expected ",
                                          std::string(expected), ", got ", std::string(got)));
}

template <typename T>
absl::StatusOr<T> GgufFile::Value(std::string_view key, std::string_view type_name) const {
  const std::string part = absl::StrCat("key ", PrintableName(key));
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Damaged(part, type_name, "none");
  const T* value = std::get_if<T>(&found->second.value);
  if (value == nullptr) return Damaged(part, type_name, "a value of another type");
  return *value;
}

absl::StatusOr<int64_t> GgufFile::Integer(std::string_view key) const {
  return Value<int64_t>(key, "an integer");
}

absl::StatusOr<int64_t> GgufFile::Integer(std::string_view key, int64_t fallback) const {
  return Has(key) ? Integer(key) : fallback;
}

absl::StatusOr<double> GgufFile::Number(std::string_view key) const {
  return Value<double>(key, "a float");
}

absl::StatusOr<double> GgufFile::Number(std::string_view key, double fallback) const {
  return Has(key) ? Number(key) : fallback;
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key, bool fallback) const {
  return Has(key) ? Value<bool>(key, "a boolean") : fallback;
}

absl::StatusOr<std::string> GgufFile::String(std::string_view key) const {
  PACELINE_ASSIGN_OR_RETURN(const std::string_view text, Value<std::string_view>(key, "a string"));
  return std::string(text);
}

absl::StatusOr<std::string> GgufFile::String(std::string_view key,
                                             std::string_view fallback) const {
  return Has(key) ? String(key) : std::string(fallback);
}

absl::StatusOr<const GgufArray*> GgufFile::Array(std::string_view key) const {
  const std::string part = absl::StrCat("key ", PrintableName(key));
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Damaged(part, "an array", "none");
  const auto* array = std::get_if<GgufArray>(&found->second.value);
  if (array == nullptr) return Damaged(part, "an array", "a value of another type");
  return array;
}

}  // namespace paceline
