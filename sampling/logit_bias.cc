#include "sampling/logit_bias.h"

namespace paceline {

bool LogitBiasActive(const SamplingOptions& options) { return !options.logit_bias.empty(); }

template <typename Real>
void ApplyLogitBias(Candidates<Real>& candidates, const SamplingOptions& options,
                    const RowContext&) {
  for (const auto& [id, bias] : options.logit_bias) {
    candidates.SetLogit(id, candidates.logit(id) + bias);
  }
}

template void ApplyLogitBias<float>(Candidates<float>&, const SamplingOptions&, const RowContext&);
template void ApplyLogitBias<double>(Candidates<double>&, const SamplingOptions&,
                                     const RowContext&);

}  // namespace paceline
