#include "sampling/guidance.h"

#include <cmath>
#include <limits>
#include <span>

#include "sampling/row_math.h"

namespace paceline {

bool GuidanceActive(const SamplingOptions& options) { return options.guidance_scale != 1; }

template <typename Real>
void ApplyGuidance(Candidates<Real>& candidates, const SamplingOptions& options,
                   const RowContext& context) {
  if (context.unconditional.size() < candidates.dense().size()) return;
  const std::span<const float> other = context.unconditional.first(candidates.dense().size());
  const float other_max = RowMax(other);
  const double mass = candidates.Mass();
  if (mass == 0 || !(other_max > -std::numeric_limits<float>::infinity())) return;
  const double shift = candidates.Max() + std::log(mass);
  const double other_shift = other_max + std::log(SumExp(other, other_max).mass);
  for (int32_t id = 0; id < candidates.vocab_size(); ++id) {
    const double conditional = candidates.logit(id) - shift;
    const double unconditional = other[id] - other_shift;
    const bool known = unconditional > -std::numeric_limits<double>::infinity();
    candidates.SetLogit(id, known ? unconditional + options.guidance_scale *
                                                        (conditional - unconditional)
                                  : conditional);
  }
}

template void ApplyGuidance<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyGuidance<double>(Candidates<double>&, const SamplingOptions&,
                                    const RowContext&);

}  // namespace paceline
