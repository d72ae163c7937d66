#include "models/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

absl::StatusOr<std::span<const uint8_t>> Map(int descriptor, const std::string& path) {
  struct stat info;
  if (fstat(descriptor, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  if (info.st_size == 0) {
    return absl::DataLossError(absl::StrCat(path, ": expected a model, got an empty file"));
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (start == MAP_FAILED) return absl::ErrnoToStatus(errno, path);
  return std::span<const uint8_t>(static_cast<const uint8_t*>(start), size);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK a pipe would be waited for.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  const absl::StatusOr<std::span<const uint8_t>> bytes = Map(descriptor, path);
  close(descriptor);
  if (!bytes.ok()) return bytes.status();
  return MappedFile(*bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

void MappedFile::ReleasePages() const {
  // Advice: where it is not taken, pages stay until the system needs them.
  if (!bytes_.empty()) madvise(const_cast<uint8_t*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

}  // namespace paceline
