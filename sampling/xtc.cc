#include "sampling/xtc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace paceline {
namespace {

bool CoinSaysSo(const SamplingOptions& options, const RowContext& context) {
  NoiseAddress address{context.position, Purpose::kXtc};
  if (context.xtc_by_round) {
    address.offset = context.offset;
    address.sub = context.node;
  }
  return Uniform(context.key, address) < options.xtc_probability;
}

}  // namespace

bool XtcActive(const SamplingOptions& options) {
  return options.xtc_probability > 0 && options.xtc_threshold <= 0.5;
}

template <typename Real>
void ApplyXtc(Candidates<Real>& candidates, const SamplingOptions& options,
              const RowContext& context) {
  constexpr double kEqualLogit = 1e-7;  // Logits of float32 are no more exact.
  const double mass = candidates.Mass();
  if (mass == 0 || !CoinSaysSo(options, context)) return;
  const auto least = static_cast<Real>(
      candidates.Max() + std::log(options.xtc_threshold * mass) - kEqualLogit);
  using Entry = typename Candidates<Real>::Entry;
  std::vector<Entry> top;
  candidates.ForEach([&](int32_t id, Real logit) {
    if (logit >= least) top.push_back({id, logit});
  });
  const int64_t kept = candidates.NumSurvivors() - std::ssize(top) + 1;
  if (top.size() < 2 || kept < options.min_keep) return;
  const Entry last = *std::min_element(top.begin(), top.end(), [](const Entry& a, const Entry& b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
  });
  if (candidates.filtered()) {
    candidates.KeepIf([&](int32_t id, Real logit) { return logit < least || id == last.id; });
    return;
  }
  for (const Entry& entry : top) {
    if (entry.id == last.id) continue;
    candidates.SetLogit(entry.id, -std::numeric_limits<double>::infinity());
  }
}

template void ApplyXtc<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyXtc<double>(Candidates<double>&, const SamplingOptions&, const RowContext&);

}  // namespace paceline
