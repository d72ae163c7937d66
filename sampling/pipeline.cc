#include "sampling/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/bad_row.h"
#include "base/status_macros.h"
#include "sampling/cutoff.h"
#include "sampling/logit_bias.h"
#include "sampling/mask.h"
#include "sampling/min_p.h"
#include "sampling/no_repeat_ngram.h"
#include "sampling/penalties.h"
#include "sampling/temperature.h"
#include "sampling/top_k.h"
#include "sampling/top_n_sigma.h"
#include "sampling/top_p.h"
#include "sampling/typical_p.h"

namespace paceline {

template <typename Real>
std::span<const Stage<Real>> DefaultOrder() {
  static constexpr Stage<Real> kStages[] = {
      {"logit_bias", LogitBiasActive, ApplyLogitBias<Real>},
      {"mask", MaskActive, ApplyMask<Real>},
      {"penalties", PenaltiesActive, ApplyPenalties<Real>},
      {"no_repeat_ngram", NoRepeatNgramActive, ApplyNoRepeatNgram<Real>},
      {"temperature", TemperatureActive, ApplyTemperature<Real>},
      {"top_n_sigma", TopNSigmaActive, ApplyTopNSigma<Real>},
      {"top_k", TopKActive, ApplyTopK<Real>},
      {"top_p", TopPActive, ApplyTopP<Real>},
      {"min_p", MinPActive, ApplyMinP<Real>},
      {"typical_p", TypicalPActive, ApplyTypicalP<Real>},
      {"epsilon_cutoff", EpsilonCutoffActive, ApplyEpsilonCutoff<Real>},
      {"eta_cutoff", EtaCutoffActive, ApplyEtaCutoff<Real>},
  };
  return kStages;
}

template <typename Real>
Pipeline<Real>::Pipeline(SamplingOptions options, int32_t vocab_size)
    : options_(std::move(options)), vocab_size_(vocab_size) {
  for (const Stage<Real>& stage : DefaultOrder<Real>()) {
    if (greedy() && stage.name == "temperature") break;
    if (stage.active(options_)) stages_.push_back(stage);
  }
}

template <typename Real>
absl::StatusOr<Pipeline<Real>> Pipeline<Real>::Create(SamplingOptions options, int32_t vocab_size) {
  PACELINE_RETURN_IF_ERROR(options.Validate(vocab_size));
  return Pipeline(std::move(options), vocab_size);
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Pipeline<Real>::Apply(std::span<const float> logits,
                                                         const RowContext& context) {
  PACELINE_RETURN_IF_ERROR(candidates_.Assign(logits, vocab_size_));
  return Run(context);
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Pipeline<Real>::Apply(std::span<const double> logits,
                                                         const RowContext& context) {
  PACELINE_RETURN_IF_ERROR(candidates_.Assign(logits, vocab_size_));
  return Run(context);
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Pipeline<Real>::Run(const RowContext& context) {
  for (const Stage<Real>& stage : stages_) stage.apply(candidates_, options_, context);
  if (!greedy()) return Distribution<Real>::Softmax(candidates_);
  const auto row = candidates_.dense();
  const auto best = std::max_element(row.begin(), row.end());
  if (!(*best > -std::numeric_limits<Real>::infinity())) {
    return NoTokenLeft();
  }
  return Distribution<Real>::OneHot(static_cast<int32_t>(best - row.begin()), vocab_size_);
}

template std::span<const Stage<float>> DefaultOrder<float>();
template std::span<const Stage<double>> DefaultOrder<double>();
template class Pipeline<float>;
template class Pipeline<double>;

}  // namespace paceline
