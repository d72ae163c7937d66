#include "models/torch_device.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

constexpr char kCudaLibrary[] = "libtorch_cuda.so";

absl::Status Unknown(const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("device: expected cpu, cuda or cuda:N, got '", name, "'"));
}

// The folder that libtorch_cpu was loaded from.
std::string TorchFolder() {
  Dl_info info;
  const auto* address = reinterpret_cast<const void*>(&at::globalContext);
  if (dladdr(address, &info) == 0) return "";
  return std::filesystem::path(info.dli_fname).parent_path().string();
}

absl::Status LoadCuda() {
  const std::string path = absl::StrCat(TorchFolder(), "/", kCudaLibrary);
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "device: cuda needs libtorch's CUDA library and the libraries it uses: ", dlerror()));
  }
  if (at::hasCUDA()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "device: cuda: libtorch_cuda was loaded, but no GPU answers");
}

}  // namespace

absl::StatusOr<at::Device> OpenDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  int32_t index = 0;
  if (name != "cuda" && (!absl::StartsWith(name, "cuda:") ||
                         !absl::SimpleAtoi(name.substr(5), &index) || index < 0 || index > 127)) {
    return Unknown(name);
  }
  PACELINE_RETURN_IF_ERROR(LoadCuda());
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  try {
    (void)at::empty({1}, at::TensorOptions().device(device));
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return absl::FailedPreconditionError(
        absl::StrCat("device: ", name, " cannot be used: ", message.substr(0, message.find('\n'))));
  }
  return device;
}

}  // namespace paceline
