// The one place where an exception of libtorch becomes a status.
#pragma once

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace paceline {

// Runs `body`, which returns a Status or StatusOr, in inference mode. Out of memory becomes
// kResourceExhausted, any other exception kInternal with its first line.
template <typename Body>
auto CallTorch(Body body) -> decltype(body()) {
  try {
    const c10::InferenceMode guard;
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    // The CPU allocator reports exhaustion by message only.
    if (message.find("allocate memory") != std::string::npos) {
      return absl::ResourceExhaustedError(message);
    }
    return absl::InternalError(absl::StrCat("libtorch: ", message));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("libtorch: ", error.what()));
  }
}

}  // namespace paceline
