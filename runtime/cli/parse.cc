#include "runtime/cli/parse.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace paceline::cli {
namespace {

absl::Status Unexpected(absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", got '", got, "'"));
}

template <typename Number>
std::string Expected() {
  if (std::is_floating_point_v<Number>) return "a finite number";
  return absl::StrCat("a whole number in [", std::numeric_limits<Number>::min(), ", ",
                      std::numeric_limits<Number>::max(), "]");
}

}  // namespace

template <typename Number>
absl::StatusOr<Number> ParseNumber(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  bool good = error == std::errc() && stop == end;
  if constexpr (std::is_floating_point_v<Number>) good = good && std::isfinite(value);
  if (!good) return Unexpected(Expected<Number>(), text);
  return value;
}

template absl::StatusOr<int32_t> ParseNumber(const std::string&);
template absl::StatusOr<uint32_t> ParseNumber(const std::string&);
template absl::StatusOr<uint64_t> ParseNumber(const std::string&);
template absl::StatusOr<double> ParseNumber(const std::string&);

absl::StatusOr<std::vector<int32_t>> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const auto id = ParseNumber<int32_t>(std::string(absl::StripAsciiWhitespace(part)));
    if (!id.ok()) return Unexpected("token ids as in 1,2,3", text);
    ids.push_back(*id);
  }
  return ids;
}

absl::StatusOr<DrawMethod> ParseDrawMethod(const std::string& text) {
  if (text == "inverse_cdf") return DrawMethod::kInverseCdf;
  if (text == "gumbel") return DrawMethod::kGumbel;
  return Unexpected("inverse_cdf or gumbel", text);
}

absl::StatusOr<std::vector<std::pair<int32_t, double>>> ParseLogitBias(const std::string& text) {
  std::vector<std::pair<int32_t, double>> biases;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> entry =
        absl::StrSplit(absl::StripAsciiWhitespace(part), absl::MaxSplits('=', 1));
    const auto id = ParseNumber<int32_t>(entry.first);
    absl::StatusOr<double> bias = ParseNumber<double>(entry.second);
    if (entry.second == "-inf") bias = -std::numeric_limits<double>::infinity();
    if (!id.ok() || !bias.ok()) return Unexpected("ID=BIAS, a number or -inf for BIAS", text);
    biases.emplace_back(*id, *bias);
  }
  return biases;
}

}  // namespace paceline::cli
