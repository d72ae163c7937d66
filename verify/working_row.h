// A row that a rule changes as it judges: what is left of the target, or of the draft.
#pragma once

#include <cstdint>
#include <span>

#include "sampling/distribution.h"
#include "verify/rule_memory.h"

namespace paceline {

// Weights over the tokens of a Distribution, in double, together with what they add up to. Starts as
// the row itself, as given and not normalised; the first change makes a copy. The row must outlive
// it, as must the memory that changed weights are kept in, if it is lent. Cost of a change: one pass
// over its entries. Instantiated for float and double.
template <typename Real>
class WorkingRow {
 public:
  explicit WorkingRow(const Distribution<Real>& row, RuleMemory* memory = nullptr)
      : row_(&row), weights_(memory), next_(memory) {}

  double Prob(int32_t id) const;  // Weight over total; 0 for a token of the row that is gone.

  // Takes `id` away. What remains is normalised by its own sum (algorithms D.8).
  void Remove(int32_t id);

  // Becomes norm((scale * this - other)+) and returns the mass before normalising. Stays as it is if
  // that is 0: nothing is left, or rounding took it (D.11).
  double Subtract(double scale, const WorkingRow& other);
  double Subtract(double scale, const Distribution<Real>& other);
  // The same of a row that has its whole mass on `id`.
  double SubtractOneHot(double scale, int32_t id);

  // Becomes norm((this - share * min(this / divisor, other))+), the residual of k-seq; as above.
  double SubtractMin(double share, double divisor, const Distribution<Real>& other);

  bool empty() const { return changed_ && !(total_ > 0); }
  // Token of the entry `index` of a draw from weights().
  int32_t IdAt(size_t index) const { return row_->IdAt(index); }
  // Calls draw(weights) with the weights as they are, float only while unchanged.
  template <typename Draw>
  auto Weights(Draw draw) const {
    return changed_ ? draw(std::span<const double>(*weights_)) : draw(row_->probs());
  }

 private:
  template <typename Combine>
  double Replace(Combine combine);
  template <typename Weight>
  double SubtractRow(double scale, const Distribution<Real>& other,
                     std::span<const Weight> weights, double factor);
  double WeightAt(size_t index) const;

  const Distribution<Real>* row_;
  bool changed_ = false;
  LentRow weights_;  // Of the entries of row_, once changed.
  LentRow next_;
  double total_ = 1;
};

extern template class WorkingRow<float>;
extern template class WorkingRow<double>;

}  // namespace paceline
