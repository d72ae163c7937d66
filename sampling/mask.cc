#include "sampling/mask.h"

#include <algorithm>
#include <limits>

namespace paceline {
namespace {

template <typename Real>
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

template <typename Real>
void KeepAllowed(Candidates<Real>& candidates, std::span<const int32_t> allowed_ids) {
  std::vector<bool> allowed(candidates.vocab_size(), false);
  for (int32_t id : allowed_ids) allowed[id] = true;
  for (int32_t id = 0; id < candidates.vocab_size(); ++id) {
    if (!allowed[id]) candidates.SetLogit(id, kMasked<Real>);
  }
}

bool EndsWith(const HistoryView& history, std::span<const int32_t> words) {
  const int64_t start = history.size() - static_cast<int64_t>(words.size());
  if (start < 0) return false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (history.At(start + static_cast<int64_t>(i)) != words[i]) return false;
  }
  return true;
}

}  // namespace

bool MaskActive(const SamplingOptions& options) {
  return !options.allowed_ids.empty() || !options.bad_words.empty() || options.min_tokens > 0;
}

template <typename Real>
void ApplyMask(Candidates<Real>& candidates, const SamplingOptions& options,
               const RowContext& context) {
  if (!options.allowed_ids.empty()) KeepAllowed<Real>(candidates, options.allowed_ids);
  for (const auto& word : options.bad_words) {
    const std::span<const int32_t> prefix(word.data(), word.size() - 1);
    if (EndsWith(context.history, prefix)) candidates.SetLogit(word.back(), kMasked<Real>);
  }
  if (context.history.output_length() < options.min_tokens) {
    for (int32_t id : options.eos_ids) candidates.SetLogit(id, kMasked<Real>);
  }
}

template void ApplyMask<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyMask<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
