// A probability row, dense or sparse, and what rules ask of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "sampling/candidates.h"
#include "sampling/row_math.h"

namespace paceline {

// What two rows have in common and what they do not.
struct Divergence {
  double overlap = 0;          // sum min(p, q), the acceptance of a token drawn from q
  double total_variation = 0;  // 1/2 sum |p - q|
  double kl = 0;               // sum p log(p / q) in nats; infinite where q = 0 < p
};

// The distribution a token is drawn from: probabilities of the tokens that survived the pipeline,
// or of all. One class serves top-k 40 and a full vocabulary of 152,000. Immutable value; owns its
// memory. Sums and cumulative masses are taken in double. Instantiated for float and double.
template <typename Real>
class Distribution {
 public:
  Distribution() = default;

  // Assign...: becomes another row, in the memory it has. After an error it is unspecified.

  // Softmax of the surviving logits. kFailedPrecondition `no_token_left` if every token is masked.
  absl::Status AssignSoftmax(Candidates<Real>& candidates);
  // Of a whole row, all finite or -inf. Errors as above.
  absl::Status AssignSoftmax(std::span<const Real> logits);

  // The whole mass on `id`.
  void AssignOneHot(int32_t id, int32_t vocab_size);
  static Distribution OneHot(int32_t id, int32_t vocab_size);

  // A row of probabilities that somebody else made. kInvalidArgument unless all are finite, at
  // least 0 and sum to 1 within 1e-4: a row that does not was not warped, and is not normalised in
  // silence.
  absl::Status AssignProbs(std::span<const Real> probs);
  static absl::StatusOr<Distribution> FromProbs(std::span<const Real> probs);
  // Those of some tokens, ids ascending and below `vocab_size`; the others have none.
  absl::Status AssignProbs(std::span<const int32_t> ids, std::span<const Real> probs,
                           int32_t vocab_size);

  int32_t vocab_size() const { return vocab_size_; }
  // Ascending ids of the entries of probs(); empty where the row is dense.
  std::span<const int32_t> ids() const { return ids_; }
  std::span<const Real> probs() const { return probs_; }
  // Token of entry `index` of probs().
  int32_t IdAt(size_t index) const {
    return ids_.empty() ? static_cast<int32_t>(index) : ids_[index];
  }

  // Entry of token `id` in probs(); -1 if it has none.
  int64_t IndexOf(int32_t id) const;

  Real Prob(int32_t id) const;   // 0 for ids outside the vocabulary.
  int32_t Draw(double u) const;  // Inverse CDF over ids ascending; u in [0, 1).
  int32_t Argmax() const;        // Ties to the lowest id.
  double EntropyBits() const;
  int64_t NumSurvivors() const;  // Tokens with a positive probability.

  // sum min(p / divisor, q), where p is this row and q is `draft`.
  double DividedOverlap(double divisor, const Distribution& draft) const;

  // Compares this row p with `draft`, q.
  Divergence DivergenceFrom(const Distribution& draft) const;

  // Calls visit(id, p, q) for every id at which this row p or `draft`, q, has an entry, ids ascending.
  template <typename Visit>
  void Merge(const Distribution& draft, Visit visit) const;

  // All vocab_size probabilities.
  void WriteDense(std::span<Real> dense) const;
  std::vector<Real> Dense() const;

 private:
  // Errors as AssignProbs, of the entries of probs_.
  absl::Status CheckProbs() const;
  // From exponentials in probs_ to probabilities.
  void Normalise(const RowSums& sums);

  int32_t vocab_size_ = 0;
  std::vector<int32_t> ids_;
  std::vector<Real> probs_;
  std::optional<double> entropy_bits_;  // Known where the row was made from logits.
};

template <typename Real>
template <typename Visit>
void Distribution<Real>::Merge(const Distribution& draft, Visit visit) const {
  if (ids_.empty() && draft.ids_.empty()) {
    for (size_t id = 0; id < probs_.size(); ++id) {
      visit(static_cast<int32_t>(id), static_cast<double>(probs_[id]),
            static_cast<double>(draft.probs_[id]));
    }
    return;
  }
  size_t i = 0;
  size_t j = 0;
  while (i < probs_.size() || j < draft.probs_.size()) {
    const int32_t mine = i < probs_.size() ? IdAt(i) : std::numeric_limits<int32_t>::max();
    const int32_t theirs =
        j < draft.probs_.size() ? draft.IdAt(j) : std::numeric_limits<int32_t>::max();
    const double target_prob = mine <= theirs ? probs_[i++] : 0;
    const double draft_prob = theirs <= mine ? draft.probs_[j++] : 0;
    visit(std::min(mine, theirs), target_prob, draft_prob);
  }
}

extern template class Distribution<float>;
extern template class Distribution<double>;

}  // namespace paceline
