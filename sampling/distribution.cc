#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/bad_row.h"
#include "base/status_macros.h"
#include "sampling/draw.h"

namespace paceline {
namespace {

constexpr double kSumTolerance = 1e-4;

}  // namespace

template <typename Real>
absl::Status Distribution<Real>::AssignSoftmax(Candidates<Real>& candidates) {
  if (!candidates.filtered()) return AssignSoftmax(candidates.dense());
  const Real max = candidates.Max();
  if (!(max > -std::numeric_limits<Real>::infinity())) return NoTokenLeft();
  vocab_size_ = candidates.vocab_size();
  ids_.clear();
  probs_.clear();
  for (const auto& entry : candidates.SurvivorsById()) {
    ids_.push_back(entry.id);
    probs_.push_back(entry.logit);
  }
  Normalise(WriteExp(std::span<const Real>(probs_), max, probs_.data()));
  return absl::OkStatus();
}

template <typename Real>
absl::Status Distribution<Real>::AssignSoftmax(std::span<const Real> logits) {
  const Real max = RowMax(logits);
  if (!(max > -std::numeric_limits<Real>::infinity())) return NoTokenLeft();
  vocab_size_ = static_cast<int32_t>(logits.size());
  ids_.clear();
  probs_.resize(logits.size());
  Normalise(WriteExp(logits, max, probs_.data()));
  return absl::OkStatus();
}

template <typename Real>
void Distribution<Real>::Normalise(const RowSums& sums) {
  Scale(std::span<Real>(probs_), 1 / sums.mass);
  entropy_bits_ = sums.EntropyBits();
}

template <typename Real>
void Distribution<Real>::AssignOneHot(int32_t id, int32_t vocab_size) {
  vocab_size_ = vocab_size;
  ids_.assign(1, id);
  probs_.assign(1, 1);
  entropy_bits_ = 0;
}

template <typename Real>
Distribution<Real> Distribution<Real>::OneHot(int32_t id, int32_t vocab_size) {
  Distribution row;
  row.AssignOneHot(id, vocab_size);
  return row;
}

template <typename Real>
absl::Status Distribution<Real>::AssignProbs(std::span<const Real> probs) {
  vocab_size_ = static_cast<int32_t>(probs.size());
  ids_.clear();
  probs_.assign(probs.begin(), probs.end());
  entropy_bits_.reset();
  return CheckProbs();
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Distribution<Real>::FromProbs(std::span<const Real> probs) {
  Distribution row;
  PACELINE_RETURN_IF_ERROR(row.AssignProbs(probs));
  return row;
}

template <typename Real>
absl::Status Distribution<Real>::AssignProbs(std::span<const int32_t> ids,
                                             std::span<const Real> probs, int32_t vocab_size) {
  if (ids.size() != probs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids: expected ", probs.size(), ", one a probability, got ", ids.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t least = i == 0 ? 0 : ids[i - 1] + 1;
    if (ids[i] >= least && ids[i] < vocab_size) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ids[", i, "]: expected an id in [", least, ", ", vocab_size,
                     "), ids ascending, got ", ids[i]));
  }
  vocab_size_ = vocab_size;
  ids_.assign(ids.begin(), ids.end());
  probs_.assign(probs.begin(), probs.end());
  entropy_bits_.reset();
  return CheckProbs();
}

template <typename Real>
absl::Status Distribution<Real>::CheckProbs() const {
  const std::span<const Real> probs = probs_;
  if (HasNegative(probs) || !std::isfinite(Sum(probs))) {
    for (size_t i = 0; i < probs.size(); ++i) {
      if (probs[i] >= 0 && !std::isinf(probs[i])) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("probs[", i, "]: expected a finite number of 0 or more, got ", probs[i]));
    }
  }
  if (const double sum = Sum(probs); !(std::abs(sum - 1) <= kSumTolerance)) {
    return absl::InvalidArgumentError(
        absl::StrCat("probs: expected a sum of 1 within ", kSumTolerance, ", got ", sum));
  }
  return absl::OkStatus();
}

template <typename Real>
int64_t Distribution<Real>::IndexOf(int32_t id) const {
  if (id < 0 || id >= vocab_size_) return -1;
  if (ids_.empty()) return id;
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  return found != ids_.end() && *found == id ? found - ids_.begin() : -1;
}

template <typename Real>
Real Distribution<Real>::Prob(int32_t id) const {
  const int64_t index = IndexOf(id);
  return index < 0 ? 0 : probs_[index];
}

template <typename Real>
int32_t Distribution<Real>::Draw(double u) const {
  return IdAt(InverseCdf(std::span<const Real>(probs_), u));
}

template <typename Real>
int32_t Distribution<Real>::Argmax() const {
  return IdAt(std::max_element(probs_.begin(), probs_.end()) - probs_.begin());
}

template <typename Real>
double Distribution<Real>::EntropyBits() const {
  if (entropy_bits_) return *entropy_bits_;
  double bits = 0;
  for (Real prob : probs_) {
    if (prob > 0) bits -= prob * std::log2(static_cast<double>(prob));
  }
  return bits;
}

template <typename Real>
int64_t Distribution<Real>::NumSurvivors() const {
  return std::count_if(probs_.begin(), probs_.end(), [](Real prob) { return prob > 0; });
}

template <typename Real>
double Distribution<Real>::DividedOverlap(double divisor, const Distribution& draft) const {
  double overlap = 0;
  Merge(draft, [&](int32_t, double target_prob, double draft_prob) {
    overlap += std::min(target_prob / divisor, draft_prob);
  });
  return overlap;
}

template <typename Real>
Divergence Distribution<Real>::DivergenceFrom(const Distribution& draft) const {
  if constexpr (std::is_same_v<Real, float>) {
    if (ids_.empty() && draft.ids_.empty()) {
      const RowOverlap rows = Compare(probs_, draft.probs_);
      return {rows.overlap, std::max(rows.masses / 2 - rows.overlap, 0.0), rows.kl};
    }
  }
  Divergence divergence;
  Merge(draft, [&](int32_t, double target_prob, double draft_prob) {
    divergence.overlap += std::min(target_prob, draft_prob);
    divergence.total_variation += std::abs(target_prob - draft_prob) / 2;
    if (target_prob > 0) divergence.kl += target_prob * std::log(target_prob / draft_prob);
  });
  return divergence;
}

template <typename Real>
std::vector<Real> Distribution<Real>::Dense() const {
  std::vector<Real> dense(vocab_size_);
  WriteDense(dense);
  return dense;
}

template <typename Real>
void Distribution<Real>::WriteDense(std::span<Real> dense) const {
  if (ids_.empty()) {
    std::copy(probs_.begin(), probs_.end(), dense.begin());
    return;
  }
  std::fill(dense.begin(), dense.end(), Real{0});
  for (size_t i = 0; i < probs_.size(); ++i) dense[ids_[i]] = probs_[i];
}

template class Distribution<float>;
template class Distribution<double>;

}  // namespace paceline
