#include "sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/bad_row.h"
#include "base/status_macros.h"
#include "sampling/row_math.h"
#include "sampling/selection.h"

namespace paceline {
namespace {

constexpr int64_t kFirstRanked = 64;  // Smallest part worth ranking at once.

template <typename Real>
constexpr Real kMasked = -std::numeric_limits<Real>::infinity();

struct RankOrder {
  template <typename Entry>
  bool operator()(const Entry& a, const Entry& b) const {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
};

}  // namespace

template <typename Input>
absl::Status CheckLogits(std::span<const Input> logits, int32_t vocab_size) {
  if (vocab_size <= 0 || static_cast<size_t>(vocab_size) > logits.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logits: expected at least vocab_size = ", vocab_size, " entries, got ", logits.size()));
  }
  if (IsSound(logits.first(vocab_size))) return absl::OkStatus();
  const auto bad = std::find_if(logits.begin(), logits.end(), [](Input logit) {
    return !(logit <= std::numeric_limits<Input>::max());
  });
  return BadLogit(bad - logits.begin(), *bad);
}

template absl::Status CheckLogits(std::span<const float>, int32_t);
template absl::Status CheckLogits(std::span<const double>, int32_t);

template <typename Real>
template <typename Input>
absl::Status Candidates<Real>::AssignFrom(std::span<const Input> logits, int32_t vocab_size) {
  PACELINE_RETURN_IF_ERROR(CheckLogits(logits, vocab_size));
  dense_.assign(logits.begin(), logits.begin() + vocab_size);
  entries_.clear();
  num_ranked_ = 0;
  filtered_ = false;
  ForgetSums();
  return absl::OkStatus();
}

template <typename Real>
absl::Status Candidates<Real>::Assign(std::span<const float> logits, int32_t vocab_size) {
  return AssignFrom(logits, vocab_size);
}

template <typename Real>
absl::Status Candidates<Real>::Assign(std::span<const double> logits, int32_t vocab_size) {
  return AssignFrom(logits, vocab_size);
}

template <typename Real>
void Candidates<Real>::ForgetSums() {
  has_max_ = false;
  has_sums_ = false;
}

template <typename Real>
void Candidates<Real>::SetLogit(int32_t id, double logit) {
  using Limits = std::numeric_limits<Real>;
  // A masked token stays masked, and an edit beyond the range of Real stops at its end: extreme but
  // valid biases and penalties must give no NaN, and mask nothing.
  if (!(dense_[id] > kMasked<Real>)) return;
  dense_[id] = logit == -std::numeric_limits<double>::infinity()
                   ? kMasked<Real>
                   : static_cast<Real>(std::clamp<double>(logit, Limits::lowest(), Limits::max()));
  num_ranked_ = 0;
  ForgetSums();
}

template <typename Real>
std::span<const typename Candidates<Real>::Entry> Candidates<Real>::SurvivorsById() {
  const auto by_id = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  if (!std::is_sorted(entries_.begin(), entries_.end(), by_id)) {
    std::sort(entries_.begin(), entries_.end(), by_id);
    num_ranked_ = 0;
  }
  return entries_;
}

template <typename Real>
int64_t Candidates<Real>::NumSurvivors() {
  if (filtered_) return static_cast<int64_t>(entries_.size());
  return std::count_if(dense_.begin(), dense_.end(), [](Real l) { return l > kMasked<Real>; });
}

template <typename Real>
Real Candidates<Real>::Max() {
  if (has_max_) return max_;
  Real max = kMasked<Real>;
  if (filtered_) {
    for (const Entry& entry : entries_) max = std::max(max, entry.logit);
  } else {
    max = RowMax(std::span<const Real>(dense_));
  }
  max_ = max;
  has_max_ = true;
  return max;
}

template <typename Real>
const RowSums& Candidates<Real>::Sums() {
  if (has_sums_) return sums_;
  const Real max = Max();
  sums_ = RowSums();
  if (max > kMasked<Real>) {
    if (filtered_) {
      for (const Entry& entry : entries_) {
        const double weight = std::exp(entry.logit - max);
        sums_.mass += weight;
        if (weight > 0) sums_.moment += weight * (entry.logit - max);
      }
    } else {
      sums_ = SumExp(std::span<const Real>(dense_), max);
    }
  }
  has_sums_ = true;
  return sums_;
}

template <typename Real>
double Candidates<Real>::Mass() {
  return Sums().mass;
}

template <typename Real>
double Candidates<Real>::Entropy() {
  const RowSums& sums = Sums();
  return sums.mass > 0 ? std::log(sums.mass) - sums.moment / sums.mass : 0.0;
}

template <typename Real>
void Candidates<Real>::Temper(double temperature) {
  const Real max = Max();
  if (!(max > kMasked<Real>)) return;
  // Finite in this precision too: a masked logit over infinity would be NaN.
  const Real divisor =
      static_cast<Real>(std::min<double>(temperature, std::numeric_limits<Real>::max()));
  const auto temper = [&](Real logit) {
    // A divisor that underflowed to 0 in this precision leaves the maxima alone.
    return logit == max ? Real{0} : (logit - max) / divisor;
  };
  if (filtered_) {
    for (Entry& entry : entries_) entry.logit = temper(entry.logit);
  } else {
    for (Real& logit : dense_) logit = temper(logit);
  }
  num_ranked_ = 0;  // Logits that differed may be equal now, and rank by id.
  max_ = 0;
  has_sums_ = false;
}

// To entries_: every token of the dense row with logit >= threshold, a finite number, ids ascending.
// Few are, so blocks are looked at as a whole first.
template <typename Real>
void Candidates<Real>::Gather(Real threshold) {
  constexpr size_t kBlock = 16;
  entries_.clear();
  const auto look = [&](size_t id) {
    if (dense_[id] >= threshold) entries_.push_back({static_cast<int32_t>(id), dense_[id]});
  };
  size_t first = 0;
  for (; first + kBlock <= dense_.size(); first += kBlock) {
    int any = 0;
    for (size_t i = 0; i < kBlock; ++i) any |= dense_[first + i] >= threshold;
    if (any == 0) continue;
    for (size_t i = 0; i < kBlock; ++i) look(first + i);
  }
  for (; first < dense_.size(); ++first) look(first);
}

// A logit that a little more than `count` tokens probably reach, from every n-th of the row; the
// lowest number where that would be a large part of them.
template <typename Real>
Real Candidates<Real>::ThresholdOf(int64_t count) const {
  constexpr int64_t kSamples = 1024;
  const auto size = static_cast<int64_t>(dense_.size());
  const int64_t rank = 2 + count * 3 / 2 * kSamples / size;
  if (size < 4 * kSamples || rank > kSamples / 2) return std::numeric_limits<Real>::lowest();
  std::array<Real, kSamples> sample;
  for (int64_t i = 0; i < kSamples; ++i) sample[i] = dense_[i * (size / kSamples)];
  std::nth_element(sample.begin(), sample.begin() + rank - 1, sample.end(), std::greater<>());
  return std::max(sample[rank - 1], std::numeric_limits<Real>::lowest());
}

template <typename Real>
void Candidates<Real>::RankDense(int64_t count) {
  for (int64_t aim = count;; aim *= 4) {
    const Real threshold = ThresholdOf(aim);
    Gather(threshold);
    if (std::ssize(entries_) >= count || threshold == std::numeric_limits<Real>::lowest()) break;
  }
  const auto most = std::min<int64_t>(std::ssize(entries_), 4 * count);
  if (most < std::ssize(entries_)) {
    std::nth_element(entries_.begin(), entries_.begin() + most - 1, entries_.end(), RankOrder());
    entries_.resize(most);
  }
  std::sort(entries_.begin(), entries_.end(), RankOrder());
  num_ranked_ = most;
}

template <typename Real>
std::span<const typename Candidates<Real>::Entry> Candidates<Real>::Ranked(int64_t count) {
  if (!filtered_ && count > num_ranked_) RankDense(std::max(count, kFirstRanked));
  const int64_t total = std::ssize(entries_);
  count = std::min(count, total);
  if (count > num_ranked_) {
    const int64_t wanted = std::min(total, std::max({count, 2 * num_ranked_, kFirstRanked}));
    const auto begin = entries_.begin() + num_ranked_;
    const auto end = entries_.begin() + wanted;
    if (wanted < total) std::nth_element(begin, end - 1, entries_.end(), RankOrder());
    std::sort(begin, end, RankOrder());
    num_ranked_ = wanted;
  }
  return std::span<const Entry>(entries_).first(count);
}

template <typename Real>
void Candidates<Real>::KeepRanked(int64_t count) {
  entries_.resize(Ranked(count).size());
  num_ranked_ = std::ssize(entries_);
  filtered_ = true;
  ForgetSums();
}

// To entries_: the likeliest tokens of the dense row, so many that they hold more than `mass`, or
// all.
template <typename Real>
void Candidates<Real>::GatherMass(double mass) {
  const Real max = Max();
  for (Real depth = 6;; depth *= 2) {
    const bool all = depth > 1000;
    Gather(all ? std::numeric_limits<Real>::lowest() : max - depth);
    double gathered = 0;
    for (const Entry& entry : entries_) gathered += std::exp(entry.logit - max);
    if (all || gathered > mass) return;
  }
}

template <typename Real>
void Candidates<Real>::KeepMass(const MassLimit& limit, int64_t min_keep) {
  const Real max = Max();
  if (!filtered_) GatherMass(limit.mass);
  num_ranked_ = 0;
  const auto first = FirstReaching(
      entries_.begin(), entries_.end(), RankOrder(),
      [&](const Entry& entry) { return std::exp(entry.logit - max); }, limit.mass, limit.inclusive);
  // `first` is the last one kept, unless even all of them stay below the limit.
  if (first == entries_.end()) return;
  const Entry cut = *first;
  if (limit.with_ties) return KeepAtLeast(cut.logit, min_keep);
  if (first - entries_.begin() < min_keep - 1) return KeepRanked(min_keep);
  KeepAtLeast(cut.logit, 1);
  std::erase_if(entries_,
                [&](const Entry& entry) { return entry.logit == cut.logit && entry.id > cut.id; });
  ForgetSums();
}

template <typename Real>
void Candidates<Real>::KeepAtLeast(Real threshold, int64_t min_keep) {
  if (!filtered_) {
    Gather(std::max(threshold, std::numeric_limits<Real>::lowest()));
    num_ranked_ = 0;
    if (std::ssize(entries_) < min_keep) return KeepRanked(min_keep);
    filtered_ = true;
    return ForgetSums();
  }
  const auto below = [&](const Entry& entry) { return entry.logit < threshold; };
  if (std::none_of(entries_.begin(), entries_.end(), below)) return;
  const int64_t above = std::count_if(entries_.begin(), entries_.end(), std::not_fn(below));
  if (above < min_keep) return KeepRanked(min_keep);
  // Stable: what was in rank order stays so, and the ranked part is a prefix of the survivors.
  const auto end = std::remove_if(entries_.begin(), entries_.end(), below);
  entries_.erase(end, entries_.end());
  num_ranked_ = std::min(num_ranked_, std::ssize(entries_));
  ForgetSums();
}

template <typename Real>
void Candidates<Real>::KeepShare(double share, int64_t min_keep) {
  constexpr double kEqualLogit = 1e-7;
  KeepAtLeast(static_cast<Real>(Max() + std::log(share) - kEqualLogit), min_keep);
}

template class Candidates<float>;
template class Candidates<double>;

}  // namespace paceline
