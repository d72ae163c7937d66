#include "draft/ngram.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace paceline {
namespace {

// What followed the most recent earlier occurrence of the last n tokens; empty if there is none.
std::span<const int32_t> Following(std::span<const int32_t> history, int32_t n) {
  const auto ending = history.last(n);
  for (int64_t start = static_cast<int64_t>(history.size()) - n - 1; start >= 0; --start) {
    if (std::equal(ending.begin(), ending.end(), history.begin() + start)) {
      return history.subspan(start + n);
    }
  }
  return {};
}

}  // namespace

absl::Status NgramOptions::Validate() const {
  if (min_n >= 1 && max_n >= min_n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("ngram: expected 1 <= min_n <= max_n, got min_n ", min_n, ", max_n ", max_n));
}

absl::StatusOr<Proposal<float>> NgramDrafter::Propose(const DraftRequest& request) {
  const auto history = request.committed;
  const int32_t longest =
      std::min<int32_t>(options_.max_n, static_cast<int32_t>(history.size()) - 1);
  for (int32_t n = longest; n >= options_.min_n; --n) {
    const auto following = Following(history, n);
    if (following.empty()) continue;
    const size_t count = std::min<size_t>(request.max_tokens, following.size());
    return Proposal<float>::Deterministic(TokenTree::Chain(following.first(count)));
  }
  return Proposal<float>();
}

}  // namespace paceline
