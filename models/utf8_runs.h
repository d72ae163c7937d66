// Stretches of UTF-8 and of bytes that are none.
#pragma once

#include <cstddef>
#include <string_view>

namespace paceline::internal {

// The end of the longest run from `begin` on that is well-formed, or ill-formed, throughout;
// `well_formed` says which. `begin` is before the end of the text.
size_t EndOfRun(std::string_view text, size_t begin, bool& well_formed);

}  // namespace paceline::internal
