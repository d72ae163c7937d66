#include "sampling/typical_p.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "sampling/selection.h"

namespace paceline {
namespace {

struct Token {
  double distance;
  int32_t id;
  double prob;

  bool operator<(const Token& other) const {
    return distance < other.distance || (distance == other.distance && id < other.id);
  }
};

}  // namespace

bool TypicalPActive(const SamplingOptions& options) { return options.typical_p < 1; }

template <typename Real>
void ApplyTypicalP(Candidates<Real>& candidates, const SamplingOptions& options,
                   const RowContext&) {
  const Real max = candidates.Max();
  const double mass = candidates.Mass();
  if (mass == 0) return;
  const double shift = std::log(mass) - candidates.Entropy();
  const auto distance = [&](Real logit) { return std::abs(shift - (logit - max)); };
  std::vector<Token> tokens;
  candidates.ForEach([&](int32_t id, Real logit) {
    tokens.push_back({distance(logit), id, std::exp(logit - max) / mass});
  });
  const bool exactly = options.typical_mode == TypicalMode::kLlama;
  auto last = FirstReaching(tokens.begin(), tokens.end(), std::less<>(),
                            [](const Token& token) { return token.prob; }, options.typical_p, exactly);
  if (last == tokens.end()) return;
  const auto fewest = tokens.begin() + std::min<int64_t>(options.min_keep, std::ssize(tokens)) - 1;
  if (last < fewest) std::nth_element(tokens.begin(), last = fewest, tokens.end());
  candidates.KeepIf([&, cut = *last](int32_t id, Real logit) {
    const double here = distance(logit);
    return here < cut.distance || (here == cut.distance && (!exactly || id <= cut.id));
  });
}

template void ApplyTypicalP<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyTypicalP<double>(Candidates<double>&, const SamplingOptions&,
                                    const RowContext&);

}  // namespace paceline
