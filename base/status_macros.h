// Early return of a failed absl::Status, which Debian's abseil lacks.
//
//   PACELINE_RETURN_IF_ERROR(options.Validate());
//   PACELINE_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define PACELINE_CONCAT_INNER(a, b) a##b
#define PACELINE_CONCAT(a, b) PACELINE_CONCAT_INNER(a, b)

#define PACELINE_RETURN_IF_ERROR(expression)                                  \
  do {                                                                        \
    if (absl::Status paceline_status = (expression); !paceline_status.ok()) { \
      return paceline_status;                                                 \
    }                                                                         \
  } while (false)

#define PACELINE_ASSIGN_OR_RETURN(declaration, expression) \
  PACELINE_ASSIGN_OR_RETURN_INNER(PACELINE_CONCAT(status_or_, __LINE__), declaration, expression)

#define PACELINE_ASSIGN_OR_RETURN_INNER(status_or, declaration, expression) \
  auto status_or = (expression);                                            \
  if (!status_or.ok()) return std::move(status_or).status();                \
  declaration = *std::move(status_or)
