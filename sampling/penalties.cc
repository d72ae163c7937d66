#include "sampling/penalties.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace paceline {
namespace {

using Counts = std::unordered_map<int32_t, int32_t>;

void AddCounts(Counts& counts, const Counts& more) {
  for (const auto& [id, count] : more) counts[id] += count;
}

Counts OutputCounts(const HistoryView& history) {
  Counts counts = history.counts->output();
  for (int32_t id : history.drafted) ++counts[id];
  return counts;
}

Counts AllCounts(const HistoryView& history) {
  Counts counts = OutputCounts(history);
  AddCounts(counts, history.counts->prompt());
  return counts;
}

Counts LastCounts(const HistoryView& history, int32_t last_n) {
  Counts counts;
  for (int64_t i = std::max<int64_t>(0, history.size() - last_n); i < history.size(); ++i) {
    ++counts[history.At(i)];
  }
  return counts;
}

Counts CountsInScope(const HistoryView& history, const SamplingOptions& options,
                     PenaltyScope default_scope) {
  PenaltyScope scope = options.penalty_scope;
  if (scope == PenaltyScope::kDefault) scope = default_scope;
  if (scope == PenaltyScope::kLastN) return LastCounts(history, options.penalty_last_n);
  return scope == PenaltyScope::kOutput ? OutputCounts(history) : AllCounts(history);
}

// Penalties beyond the range of Real stop at its end: 0 times infinity would be NaN, and a product
// of -inf would mask.
template <typename Real>
void Repeat(Candidates<Real>& candidates, const Counts& counts, double repetition) {
  using Limits = std::numeric_limits<Real>;
  const Real penalty = static_cast<Real>(std::min<double>(repetition, Limits::max()));
  for (const auto& [id, count] : counts) {
    const Real logit = candidates.logit(id);
    candidates.SetLogit(id,
                        logit > 0 ? logit / penalty : std::max(logit * penalty, Limits::lowest()));
  }
}

template <typename Real>
void Subtract(Candidates<Real>& candidates, const Counts& counts, double frequency,
              double presence) {
  for (const auto& [id, count] : counts) {
    const double penalty = frequency * count + presence;
    candidates.SetLogit(
        id, std::max<double>(candidates.logit(id) - penalty, std::numeric_limits<Real>::lowest()));
  }
}

}  // namespace

bool PenaltiesActive(const SamplingOptions& options) {
  return options.repetition_penalty != 1 || options.frequency_penalty != 0 ||
         options.presence_penalty != 0;
}

template <typename Real>
void ApplyPenalties(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext& context) {
  if (options.repetition_penalty != 1) {
    const Counts counts = CountsInScope(context.history, options, PenaltyScope::kPromptAndOutput);
    Repeat(candidates, counts, options.repetition_penalty);
  }
  if (options.frequency_penalty != 0 || options.presence_penalty != 0) {
    const Counts counts = CountsInScope(context.history, options, PenaltyScope::kOutput);
    Subtract(candidates, counts, options.frequency_penalty, options.presence_penalty);
  }
}

template void ApplyPenalties<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyPenalties<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
