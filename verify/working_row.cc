#include "verify/working_row.h"

#include <algorithm>
#include <utility>

#include "sampling/row_math.h"

namespace paceline {
namespace {

// For every entry of `row` in order, visit(index, weight of the same token in the other row or 0).
// `weights` belong to the entries of `other`.
template <typename Real, typename Weight, typename Visit>
void Align(const Distribution<Real>& row, const Distribution<Real>& other,
           std::span<const Weight> weights, Visit visit) {
  size_t j = 0;
  for (size_t i = 0; i < row.probs().size(); ++i) {
    const int32_t id = row.IdAt(i);
    while (j < weights.size() && other.IdAt(j) < id) ++j;
    const bool found = j < weights.size() && other.IdAt(j) == id;
    visit(i, found ? static_cast<double>(weights[j]) : 0.0);
  }
}

}  // namespace

template <typename Real>
double WorkingRow<Real>::WeightAt(size_t index) const {
  return changed_ ? (*weights_)[index] : row_->probs()[index];
}

template <typename Real>
double WorkingRow<Real>::Prob(int32_t id) const {
  const int64_t index = row_->IndexOf(id);
  return index < 0 || empty() ? 0.0 : WeightAt(index) / total_;
}

// combine(next) fills `next`, an entry each of ours, and returns their sum.
template <typename Real>
template <typename Combine>
double WorkingRow<Real>::Replace(Combine combine) {
  const double mass = combine(std::span<double>(next_.Resize(row_->probs().size())));
  if (!(mass > 0)) return 0;
  std::swap(weights_, next_);
  total_ = mass;
  changed_ = true;
  return mass;
}

template <typename Real>
void WorkingRow<Real>::Remove(int32_t id) {
  const int64_t gone = row_->IndexOf(id);
  if (gone < 0) return;
  const std::span<const Real> probs = row_->probs();
  std::vector<double>& weights = weights_.Resize(probs.size());
  if (!changed_) std::copy(probs.begin(), probs.end(), weights.begin());
  changed_ = true;
  weights[gone] = 0;
  total_ = Sum(std::span<const double>(weights));
}

template <typename Real>
template <typename Weight>
double WorkingRow<Real>::SubtractRow(double scale, const Distribution<Real>& other,
                                     std::span<const Weight> weights, double factor) {
  return Replace([&](std::span<double> next) {
    const double ours = scale / total_;
    const bool dense = row_->ids().empty() && other.ids().empty();
    if (dense && weights.size() == next.size()) {
      return changed_ ? WriteResidual(std::span<const double>(*weights_), ours, weights, factor, next)
                      : WriteResidual(row_->probs(), ours, weights, factor, next);
    }
    double mass = 0;
    Align(*row_, other, weights, [&](size_t i, double theirs) {
      next[i] = std::max(ours * WeightAt(i) - factor * theirs, 0.0);
      mass += next[i];
    });
    return mass;
  });
}

template <typename Real>
double WorkingRow<Real>::Subtract(double scale, const WorkingRow& other) {
  if (other.empty()) return Subtract(scale, Distribution<Real>());
  return other.Weights([&](auto weights) {
    return SubtractRow(scale, *other.row_, weights, 1 / other.total_);
  });
}

template <typename Real>
double WorkingRow<Real>::Subtract(double scale, const Distribution<Real>& other) {
  return SubtractRow(scale, other, other.probs(), 1.0);
}

template <typename Real>
double WorkingRow<Real>::SubtractOneHot(double scale, int32_t id) {
  return Replace([&](std::span<double> next) {
    const double ours = scale / total_;
    const int64_t index = row_->IndexOf(id);
    double mass = 0;
    for (size_t i = 0; i < next.size(); ++i) {
      const double theirs = static_cast<int64_t>(i) == index ? 1.0 : 0.0;
      next[i] = std::max(ours * WeightAt(i) - theirs, 0.0);
      mass += next[i];
    }
    return mass;
  });
}

template <typename Real>
double WorkingRow<Real>::SubtractMin(double share, double divisor,
                                     const Distribution<Real>& other) {
  return Replace([&](std::span<double> next) {
    double mass = 0;
    Align(*row_, other, other.probs(), [&](size_t i, double theirs) {
      const double ours = WeightAt(i) / total_;
      next[i] = std::max(ours - share * std::min(ours / divisor, theirs), 0.0);
      mass += next[i];
    });
    return mass;
  });
}

template class WorkingRow<float>;
template class WorkingRow<double>;

}  // namespace paceline
