#include "models/slice.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "models/gguf.h"
#include "models/gguf_model.h"
#include "models/mapped_file.h"

namespace paceline {
namespace {

constexpr uint32_t kUint32Type = 4;
constexpr std::string_view kLayerPrefix = "blk.";

// A file that takes its place only when it is complete.
class AtomicFile {
 public:
  static absl::StatusOr<AtomicFile> Create(const std::string& path) {
    std::string temporary;
    int descriptor = -1;
    errno = EEXIST;  // A name may be left over from a process that was killed.
    for (int i = 0; i < 100 && descriptor < 0 && errno == EEXIST; ++i) {
      temporary = absl::StrCat(path, ".", getpid(), ".", i, ".tmp");
      descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    }
    if (descriptor < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
    }
    return AtomicFile(path, temporary, descriptor);
  }

  AtomicFile(AtomicFile&& other) noexcept
      : path_(other.path_),
        temporary_(other.temporary_),
        descriptor_(std::exchange(other.descriptor_, -1)) {}

  ~AtomicFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());
  }

  absl::Status Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be written"));
      }
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Commit() {
    if (fsync(descriptor_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be written"));
    }
    close(std::exchange(descriptor_, -1));
    return absl::OkStatus();
  }

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  std::string path_;
  std::string temporary_;
  int descriptor_;
};

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutString(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out.append(text);
}

std::string_view AsText(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Layer of a tensor `blk.N.*`; -1 for one that belongs to no layer.
int32_t LayerOf(std::string_view name) {
  if (!name.starts_with(kLayerPrefix)) return -1;
  name.remove_prefix(kLayerPrefix.size());
  int32_t layer = -1;
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer;
}

int64_t Padding(int64_t size, int64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

void PutTensorInfo(std::string& out, const TensorView& tensor, uint64_t offset) {
  PutString(out, tensor.name);
  Put<uint32_t>(out, static_cast<uint32_t>(tensor.shape.size()));
  for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
    Put<uint64_t>(out, static_cast<uint64_t>(*size));
  }
  Put<uint32_t>(out, GgufTypeId(tensor.type));
  Put<uint64_t>(out, offset);
}

// Everything before the tensors' data, padded to its first byte.
std::string Head(const GgufFile& file, std::string_view layers_key, int32_t num_layers,
                 const std::vector<const TensorView*>& tensors) {
  std::string head = "GGUF";
  Put<uint32_t>(head, file.version());
  Put<uint64_t>(head, tensors.size());
  Put<uint64_t>(head, file.keys().size());
  for (std::string_view key : file.keys()) {
    if (key == layers_key) {
      PutString(head, key);
      Put<uint32_t>(head, kUint32Type);
      Put<uint32_t>(head, static_cast<uint32_t>(num_layers));
    } else {
      head.append(AsText(file.entries().at(key).bytes));
    }
  }
  uint64_t offset = 0;
  for (const TensorView* tensor : tensors) {
    PutTensorInfo(head, *tensor, offset);
    const auto size = static_cast<int64_t>(tensor->bytes.size());
    offset += static_cast<uint64_t>(size + Padding(size, file.alignment()));
  }
  head.append(Padding(static_cast<int64_t>(head.size()), file.alignment()), '\0');
  return head;
}

absl::Status WriteModel(const GgufFile& file, const std::string& out, const std::string& head,
                        const std::vector<const TensorView*>& tensors) {
  PACELINE_ASSIGN_OR_RETURN(AtomicFile target, AtomicFile::Create(out));
  PACELINE_RETURN_IF_ERROR(target.Write(head));
  for (const TensorView* tensor : tensors) {
    PACELINE_RETURN_IF_ERROR(target.Write(AsText(tensor->bytes)));
    const auto size = static_cast<int64_t>(tensor->bytes.size());
    PACELINE_RETURN_IF_ERROR(target.Write(std::string(Padding(size, file.alignment()), '\0')));
  }
  return target.Commit();
}

// Refuses what a rename would destroy: the model itself, by whatever path, and what is no file.
absl::Status CheckOut(const std::string& in, const std::string& out) {
  std::error_code ignored;  // Nothing there, or nothing that can be looked at: writing will tell.
  if (std::filesystem::equivalent(in, out, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat("out: expected another file than ", in));
  }
  if (std::filesystem::exists(out, ignored) && !std::filesystem::is_regular_file(out, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("out: expected the path of a file, got ", out, ", which is none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SliceModel(const std::string& in, const std::string& out, int32_t num_layers) {
  PACELINE_ASSIGN_OR_RETURN(const MappedFile mapping, MappedFile::Open(in));
  PACELINE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(mapping.bytes(), in));
  PACELINE_ASSIGN_OR_RETURN(const ModelConfig config, GgufModelConfig(file));
  PACELINE_RETURN_IF_ERROR(GgufTensors(file, config).status());
  if (num_layers < 1 || num_layers > config.num_layers) {
    return absl::InvalidArgumentError(absl::StrCat("layers: expected a number in [1, ",
                                                   config.num_layers, "], got ", num_layers));
  }
  PACELINE_RETURN_IF_ERROR(CheckOut(in, out));
  std::vector<const TensorView*> tensors;
  for (const TensorView& tensor : file.tensors()) {
    if (LayerOf(tensor.name) < num_layers) tensors.push_back(&tensor);
  }
  const std::string layers_key = absl::StrCat(config.architecture, ".block_count");
  return WriteModel(file, out, Head(file, layers_key, num_layers, tensors), tensors);
}

}  // namespace paceline
