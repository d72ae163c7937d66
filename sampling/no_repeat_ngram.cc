#include "sampling/no_repeat_ngram.h"

#include <limits>

namespace paceline {
namespace {

// Whether `length` tokens from `a` on are those from `b` on.
bool Same(const HistoryView& history, int64_t a, int64_t b, int64_t length) {
  for (int64_t i = 0; i < length; ++i) {
    if (history.At(a + i) != history.At(b + i)) return false;
  }
  return true;
}

}  // namespace

bool NoRepeatNgramActive(const SamplingOptions& options) {
  return options.no_repeat_ngram_size > 0;
}

template <typename Real>
void ApplyNoRepeatNgram(Candidates<Real>& candidates, const SamplingOptions& options,
                        const RowContext& context) {
  const HistoryView& history = context.history;
  const int64_t prefix = options.no_repeat_ngram_size - 1;
  const int64_t ending = history.size() - prefix;
  for (int64_t start = 0; start < ending; ++start) {
    if (!Same(history, start, ending, prefix)) continue;
    candidates.SetLogit(history.At(start + prefix), -std::numeric_limits<double>::infinity());
  }
}

template void ApplyNoRepeatNgram<float>(Candidates<float>&, const SamplingOptions&,
                                        const RowContext&);
template void ApplyNoRepeatNgram<double>(Candidates<double>&, const SamplingOptions&,
                                         const RowContext&);

}  // namespace paceline
