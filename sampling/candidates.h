// The row that stages edit on its way from logits to a distribution.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "sampling/row_math.h"

namespace paceline {

// OK if the first `vocab_size` of `logits` are there and are finite or -inf. Otherwise
// kInvalidArgument naming the size, or the id of the first NaN or +inf.
template <typename Input>
absl::Status CheckLogits(std::span<const Input> logits, int32_t vocab_size);

// Logits of the tokens that may still come. Starts dense: one logit an id, edited in place by
// biases, masks and penalties. The first filter turns it into a list of survivors, of which as many
// as a filter asks for are brought in rank order (value descending, id ascending). The maximum and
// the sum of exponentials are computed when first asked for and kept until something changes them.
//
// Made for reuse: Assign keeps the memory of the last row. Instantiated for float and double.
template <typename Real>
class Candidates {
 public:
  struct Entry {
    int32_t id;
    Real logit;
  };

  // Takes a row of `logits`, of which the first `vocab_size` are tokens: what lies beyond is
  // padding of the model's head and never comes. kInvalidArgument naming the id for NaN and +inf.
  absl::Status Assign(std::span<const float> logits, int32_t vocab_size);
  absl::Status Assign(std::span<const double> logits, int32_t vocab_size);

  int32_t vocab_size() const { return static_cast<int32_t>(dense_.size()); }
  bool filtered() const { return filtered_; }

  // Dense editing; only before the first filter. -inf masks, and a masked token stays masked; other
  // values stop at the ends of the finite range.
  Real logit(int32_t id) const { return dense_[id]; }
  void SetLogit(int32_t id, double logit);
  std::span<const Real> dense() const { return dense_; }

  // Survivors in no particular order; only after the first filter.
  std::span<const Entry> survivors() const { return entries_; }

  // The same with ids ascending.
  std::span<const Entry> SurvivorsById();

  // Tokens whose logit is above -inf.
  int64_t NumSurvivors();

  // Largest logit; -inf if every token is masked.
  Real Max();
  // Sum over survivors of exp(logit - Max()), in double; at least 1 unless all are masked.
  double Mass();
  // Of the survivors' probabilities, in nats; 0 if all are masked.
  double Entropy();

  // Calls visit(id, logit) for every survivor.
  template <typename Visit>
  void ForEach(Visit visit) const {
    if (filtered_) {
      for (const Entry& entry : entries_) visit(entry.id, entry.logit);
      return;
    }
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (dense_[id] > -std::numeric_limits<Real>::infinity()) visit(id, dense_[id]);
    }
  }

  // Replaces each logit l by (l - Max()) / temperature, temperature > 0. Cannot overflow.
  void Temper(double temperature);

  // The first `count` survivors (or all) in rank order, valid until the next call of any other
  // member. Not a filter. Cost: a pass over a dense row that stores little more than `count`
  // entries; after the first filter O(V + count log count) for each doubling of the ranked part.
  std::span<const Entry> Ranked(int64_t count);

  // Keeps the first `count` of the rank order.
  void KeepRanked(int64_t count);

  // Keeps, in rank order, tokens while the mass before them is below the limit, and at least
  // `min_keep`. Cost: a pass or two over a dense row, then linear in the tokens near the limit.
  struct MassLimit {
    double mass;             // In the units of Mass().
    bool inclusive = false;  // A token stays when the mass before it is the limit.
    bool with_ties = false;  // So do all that are equal to the last one kept.
  };
  void KeepMass(const MassLimit& limit, int64_t min_keep);

  // Keeps the survivors for which keep(id, logit) is true; it must be for one at least.
  template <typename Keep>
  void KeepIf(Keep keep) {
    if (!filtered_) Gather(std::numeric_limits<Real>::lowest());
    std::erase_if(entries_, [&](const Entry& entry) { return !keep(entry.id, entry.logit); });
    num_ranked_ = 0;
    filtered_ = true;
    ForgetSums();
  }

  // Keeps survivors with logit >= threshold, and at least the first `min_keep` of the rank order.
  void KeepAtLeast(Real threshold, int64_t min_keep);

  // Keeps survivors with at least `share` of the largest probability, else as KeepAtLeast. A share
  // within 1e-7 of it, relatively, counts as reaching it: float32 logits are no more exact.
  void KeepShare(double share, int64_t min_keep);

 private:
  template <typename Input>
  absl::Status AssignFrom(std::span<const Input> logits, int32_t vocab_size);
  void RankDense(int64_t count);
  Real ThresholdOf(int64_t count) const;
  void Gather(Real threshold);
  void GatherMass(double mass);
  const RowSums& Sums();
  void ForgetSums();

  std::vector<Real> dense_;
  std::vector<Entry> entries_;  // All survivors once filtered; of a dense row the first in rank order.
  int64_t num_ranked_ = 0;  // The first entries that are in rank order, all before the rest.
  bool filtered_ = false;
  bool has_max_ = false;
  bool has_sums_ = false;
  Real max_ = 0;
  RowSums sums_;
};

extern template class Candidates<float>;
extern template class Candidates<double>;

}  // namespace paceline
