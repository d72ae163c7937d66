// Compiled without contraction to fused multiply-add, so that every build of a function gives the
// same bits.
#include "sampling/row_math.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "base/clones.h"

namespace paceline {
namespace {

#define PACELINE_INLINE inline __attribute__((always_inline))

constexpr size_t kLanes = 8;
using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));
using Half = float __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(32)));

PACELINE_INLINE void Load(const float* from, Floats& x) { std::memcpy(&x, from, sizeof x); }

// Lanes of a sum in double, added up in one order at the end.
struct LaneSums {
  Doubles low = {};
  Doubles high = {};

  PACELINE_INLINE void Add(const Floats& x) {
    Half halves[2];
    std::memcpy(halves, &x, sizeof x);
    low += __builtin_convertvector(halves[0], Doubles);
    high += __builtin_convertvector(halves[1], Doubles);
  }
  PACELINE_INLINE double Total() const {
    const Doubles sum = low + high;
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
  }
};

// x where the mask is set, 0 elsewhere.
PACELINE_INLINE void KeepWhere(const Ints& mask, Floats& x) {
  Ints bits;
  std::memcpy(&bits, &x, sizeof x);
  bits &= mask;
  std::memcpy(&x, &bits, sizeof x);
}

// exp(x) for x <= 0: Cody and Waite's reduction by ln 2, then the Taylor polynomial of degree 7.
PACELINE_INLINE void Exp(const Floats& x, Floats& result) {
  const Floats magic = Floats{} + 0x1.8p23f;
  const Floats power = (x * std::numbers::log2e_v<float> + magic) - magic;
  const Floats rest = (x - power * 0.693145751953125f) - power * 1.428606765330187e-6f;
  Floats sum = Floats{} + 1.0f / 5040;
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    sum = sum * rest + factor;
  }
  const Ints bits = (__builtin_convertvector(power, Ints) + 127) << 23;
  Floats scale;
  std::memcpy(&scale, &bits, sizeof bits);
  result = sum * scale;
}

// ln(x) for normal x > 0: x = 2^k m with m in [sqrt(1/2), sqrt(2)), then ln m = 2 artanh(s) with
// s = (m - 1) / (m + 1), whose series ends at s^9.
PACELINE_INLINE void Log(const Floats& x, Floats& result) {
  Ints bits;
  std::memcpy(&bits, &x, sizeof x);
  const Ints shifted = bits - 0x3F3504F3;
  const Ints exponent = shifted >> 23;
  bits = (shifted & 0x007FFFFF) + 0x3F3504F3;
  Floats m;
  std::memcpy(&m, &bits, sizeof m);
  const Floats s = (m - 1.0f) / (m + 1.0f);
  const Floats square = s * s;
  Floats series = Floats{} + 2.0f / 9;
  for (const float factor : {2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f}) series = series * square + factor;
  result = __builtin_convertvector(exponent, Floats) * std::numbers::ln2_v<float> + series * s;
}

struct ExpSums {
  LaneSums mass;
  LaneSums moment;
};

constexpr float kLowest = -87.0f;

PACELINE_INLINE void AddExp(const float* logits, float max, ExpSums& sums, float* weights) {
  Floats x;
  Load(logits, x);
  x -= max;
  const Ints kept = x >= kLowest;
  KeepWhere(kept, x);
  Floats e;
  Exp(x, e);
  KeepWhere(kept, e);
  sums.mass.Add(e);
  sums.moment.Add(e * x);
  if (weights != nullptr) std::memcpy(weights, &e, sizeof e);
}

PACELINE_INLINE RowSums Exponentials(std::span<const float> logits, float max, float* weights) {
  ExpSums sums;
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    AddExp(logits.data() + i, max, sums, weights == nullptr ? nullptr : weights + i);
  }
  if (i < logits.size()) {
    float rest[kLanes];
    float result[kLanes];
    for (float& value : rest) value = -std::numeric_limits<float>::infinity();
    std::memcpy(rest, logits.data() + i, (logits.size() - i) * sizeof(float));
    AddExp(rest, max, sums, result);
    if (weights != nullptr) std::memcpy(weights + i, result, (logits.size() - i) * sizeof(float));
  }
  return {sums.mass.Total(), sums.moment.Total()};
}

}  // namespace

double RowSums::EntropyBits() const {
  return (std::log(mass) - moment / mass) / std::numbers::ln2;
}

PACELINE_CLONES float RowMax(std::span<const float> logits) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
  }
  for (; i < logits.size(); ++i) lanes[0] = logits[i] > lanes[0] ? logits[i] : lanes[0];
  float max = lanes[0];
  for (const float lane : lanes) max = lane > max ? lane : max;
  return max;
}

PACELINE_CLONES bool IsSound(std::span<const float> logits) {
  // NaN and +inf fail the comparison; one flag keeps the loop free of branches.
  int sound = 1;
  for (const float logit : logits) sound &= logit <= std::numeric_limits<float>::max();
  return sound != 0;
}

bool IsSound(std::span<const double> logits) {
  bool sound = true;
  for (const double logit : logits) sound &= logit <= std::numeric_limits<double>::max();
  return sound;
}

PACELINE_CLONES bool HasNegative(std::span<const float> weights) {
  int negative = 0;
  for (const float weight : weights) negative |= weight < 0;
  return negative != 0;
}

bool HasNegative(std::span<const double> weights) {
  bool negative = false;
  for (const double weight : weights) negative |= weight < 0;
  return negative;
}

double RowMax(std::span<const double> logits) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double logit : logits) max = logit > max ? logit : max;
  return max;
}

PACELINE_CLONES RowSums SumExp(std::span<const float> logits, float max) {
  return Exponentials(logits, max, nullptr);
}

PACELINE_CLONES RowSums WriteExp(std::span<const float> logits, float max, float* weights) {
  return Exponentials(logits, max, weights);
}

RowSums WriteExp(std::span<const double> logits, double max, double* weights) {
  RowSums sums;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(logits[i] - max);
    sums.mass += weight;
    if (weight > 0) sums.moment += weight * (logits[i] - max);
    if (weights != nullptr) weights[i] = weight;
  }
  return sums;
}

RowSums SumExp(std::span<const double> logits, double max) {
  return WriteExp(logits, max, nullptr);
}

PACELINE_CLONES void Scale(std::span<float> weights, double factor) {
  const auto by = static_cast<float>(factor);
  for (float& weight : weights) weight *= by;
}

void Scale(std::span<double> weights, double factor) {
  for (double& weight : weights) weight *= factor;
}

PACELINE_CLONES double Sum(std::span<const float> weights) {
  LaneSums sums;
  size_t i = 0;
  for (; i + kLanes <= weights.size(); i += kLanes) {
    Floats x;
    Load(weights.data() + i, x);
    sums.Add(x);
  }
  double total = sums.Total();
  for (; i < weights.size(); ++i) total += weights[i];
  return total;
}

double Sum(std::span<const double> weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  return total;
}

namespace {

PACELINE_INLINE void LoadDoubles(const float* from, Doubles& x) {
  Half half;
  std::memcpy(&half, from, sizeof half);
  x = __builtin_convertvector(half, Doubles);
}
PACELINE_INLINE void LoadDoubles(const double* from, Doubles& x) { std::memcpy(&x, from, sizeof x); }

template <typename P, typename Q>
PACELINE_INLINE double Residual(std::span<const P> p, double scale, std::span<const Q> q,
                                double factor, std::span<double> residual) {
  constexpr size_t kDoubles = sizeof(Doubles) / sizeof(double);
  Doubles sums = {};
  size_t i = 0;
  for (; i + kDoubles <= p.size(); i += kDoubles) {
    Doubles x, y;
    LoadDoubles(p.data() + i, x);
    LoadDoubles(q.data() + i, y);
    x = x * scale - y * factor;
    x = x > 0 ? x : Doubles{};
    sums += x;
    std::memcpy(residual.data() + i, &x, sizeof x);
  }
  double total = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  for (; i < p.size(); ++i) {
    const double left = p[i] * scale - q[i] * factor;
    residual[i] = left > 0 ? left : 0;
    total += residual[i];
  }
  return total;
}

}  // namespace

PACELINE_CLONES double WriteResidual(std::span<const float> p, double scale,
                                     std::span<const float> q, double factor,
                                     std::span<double> residual) {
  return Residual(p, scale, q, factor, residual);
}
PACELINE_CLONES double WriteResidual(std::span<const float> p, double scale,
                                     std::span<const double> q, double factor,
                                     std::span<double> residual) {
  return Residual(p, scale, q, factor, residual);
}
PACELINE_CLONES double WriteResidual(std::span<const double> p, double scale,
                                     std::span<const float> q, double factor,
                                     std::span<double> residual) {
  return Residual(p, scale, q, factor, residual);
}
PACELINE_CLONES double WriteResidual(std::span<const double> p, double scale,
                                     std::span<const double> q, double factor,
                                     std::span<double> residual) {
  return Residual(p, scale, q, factor, residual);
}

namespace {

struct OverlapSums {
  LaneSums overlap;
  LaneSums kl;
  LaneSums masses;
  Ints unbounded = {};
};

PACELINE_INLINE void AddOverlap(const float* p, const float* q, OverlapSums& sums) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  Floats x, y;
  Load(p, x);
  Load(q, y);
  sums.overlap.Add(x < y ? x : y);
  sums.masses.Add(x + y);
  sums.unbounded |= (x > 0) & (y <= 0);
  const Ints counted = (x >= kSmallest) & (y >= kSmallest);  // Others add less than 1e-36.
  // Both are normal and at most about 1, so their ratio is a normal float.
  Floats log_ratio;
  Log(x / y, log_ratio);
  Floats term = x * log_ratio;
  KeepWhere(counted, term);
  sums.kl.Add(term);
}

}  // namespace

PACELINE_CLONES RowOverlap Compare(std::span<const float> p, std::span<const float> q) {
  OverlapSums sums;
  size_t i = 0;
  for (; i + kLanes <= p.size(); i += kLanes) AddOverlap(p.data() + i, q.data() + i, sums);
  if (i < p.size()) {
    float mine[kLanes] = {};
    float theirs[kLanes] = {};
    std::memcpy(mine, p.data() + i, (p.size() - i) * sizeof(float));
    std::memcpy(theirs, q.data() + i, (p.size() - i) * sizeof(float));
    AddOverlap(mine, theirs, sums);
  }
  bool unbounded = false;
  for (size_t j = 0; j < kLanes; ++j) unbounded |= sums.unbounded[j] != 0;
  return {sums.overlap.Total(),
          unbounded ? std::numeric_limits<double>::infinity() : sums.kl.Total(),
          sums.masses.Total()};
}

}  // namespace paceline
