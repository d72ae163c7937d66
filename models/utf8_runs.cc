#include "models/utf8_runs.h"

#include <unicode/utf8.h>

#include <cstdint>

namespace paceline::internal {

size_t EndOfRun(std::string_view text, size_t begin, bool& well_formed) {
  const auto length = static_cast<int64_t>(text.size());
  const auto start = static_cast<int64_t>(begin);
  for (int64_t i = start; i < length;) {
    const int64_t before = i;
    int32_t code_point;
    U8_NEXT(text.data(), i, length, code_point);
    if (before == start) {
      well_formed = code_point >= 0;
    } else if (well_formed != (code_point >= 0)) {
      return before;
    }
  }
  return text.size();
}

}  // namespace paceline::internal
