// A file mapped into memory, read-only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace paceline {

// Owns the mapping. The file must not be shortened while it is mapped.
class MappedFile {
 public:
  // kNotFound if there is no such file, kInvalidArgument if it is no regular file, kDataLoss if it
  // is empty, kPermissionDenied or kUnknown as the system says.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const uint8_t> bytes() const { return bytes_; }

  // Gives the memory of what was read back to the system; what is read again comes from the file.
  void ReleasePages() const;

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> bytes_;
};

}  // namespace paceline
