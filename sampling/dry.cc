#include "sampling/dry.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <vector>

namespace paceline {
namespace {

using Tokens = std::vector<int32_t>;

// The last tokens of the history, the newest first.
Tokens ReversedWindow(const HistoryView& history, int32_t last_n) {
  const int64_t size = last_n < 0 ? history.size() : std::min<int64_t>(last_n, history.size());
  Tokens window(size);
  for (int64_t i = 0; i < size; ++i) window[i] = history.At(history.size() - 1 - i);
  return window;
}

// z[i]: how many tokens from i on equal those from 0 on (Gusfield 1997, section 1.4).
std::vector<int64_t> ZArray(const Tokens& text) {
  const int64_t size = std::ssize(text);
  std::vector<int64_t> z(size, 0);
  for (int64_t i = 1, left = 0, right = 0; i < size; ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < size && text[z[i]] == text[i + z[i]]) ++z[i];
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  return z;
}

// Tokens behind the breaker that starts nearest the end, the longest of those; all without one.
int64_t MatchLimit(const Tokens& reversed, const std::vector<Tokens>& breakers) {
  int64_t limit = std::ssize(reversed);
  int64_t nearest = std::ssize(reversed);  // Reversed index of that breaker's first token.
  for (const Tokens& breaker : breakers) {
    const auto found =
        std::search(reversed.begin(), reversed.end(), breaker.rbegin(), breaker.rend());
    if (found == reversed.end()) continue;
    const int64_t behind = found - reversed.begin();
    const int64_t start = behind + std::ssize(breaker) - 1;
    if (start > nearest || (start == nearest && behind > limit)) continue;
    nearest = start;
    limit = behind;
  }
  return limit;
}

bool IsBreaker(int32_t token, const std::vector<Tokens>& breakers) {
  return std::any_of(breakers.begin(), breakers.end(), [&](const Tokens& breaker) {
    return breaker.size() == 1 && breaker[0] == token;
  });
}

}  // namespace

bool DryActive(const SamplingOptions& options) {
  return options.dry_multiplier > 0 && options.dry_penalty_last_n != 0;
}

template <typename Real>
void ApplyDry(Candidates<Real>& candidates, const SamplingOptions& options,
              const RowContext& context) {
  const Tokens reversed = ReversedWindow(context.history, options.dry_penalty_last_n);
  const int64_t limit = MatchLimit(reversed, options.dry_breakers);
  const std::vector<int64_t> z = ZArray(reversed);
  const int64_t least = options.dry_allowed_length;
  std::map<int32_t, int64_t> lengths;
  for (int64_t i = 1; i < std::ssize(reversed); ++i) {
    const int64_t length = std::min(z[i], limit);
    if (length < least) continue;
    int64_t& longest = lengths[reversed[i - 1]];
    longest = std::max(longest, length);
  }
  for (const auto& [token, length] : lengths) {
    if (IsBreaker(token, options.dry_breakers)) continue;
    const double penalty =
        options.dry_multiplier * std::pow(options.dry_base, static_cast<double>(length - least));
    const double most = std::numeric_limits<float>::max();
    candidates.SetLogit(token, candidates.logit(token) - std::min(penalty, most));
  }
}

template void ApplyDry<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyDry<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
