// Loops over whole rows of the vocabulary, where sampling spends its time. The float versions run in
// vectors, in one fixed order whatever the machine; the double versions are plain loops, for proofs.
#pragma once

#include <cstdint>
#include <span>

namespace paceline {

// Of weights e = exp(logit - max).
struct RowSums {
  double mass = 0;    // sum e
  double moment = 0;  // sum e (logit - max)

  // Entropy of the weights divided by their mass, in bits.
  double EntropyBits() const;
};

float RowMax(std::span<const float> logits);  // -inf if empty
double RowMax(std::span<const double> logits);

// Whether no logit is NaN or +inf.
bool IsSound(std::span<const float> logits);
bool IsSound(std::span<const double> logits);

// `max` is finite and no logit is above it; -inf weighs 0. In float, exp has a relative error below
// 3e-7, and is 0 below exp(-87).
RowSums SumExp(std::span<const float> logits, float max);
RowSums SumExp(std::span<const double> logits, double max);

// The same, and writes each e.
RowSums WriteExp(std::span<const float> logits, float max, float* weights);
RowSums WriteExp(std::span<const double> logits, double max, double* weights);

// Whether a weight is below 0.
bool HasNegative(std::span<const float> weights);
bool HasNegative(std::span<const double> weights);

void Scale(std::span<float> weights, double factor);
void Scale(std::span<double> weights, double factor);

double Sum(std::span<const float> weights);
double Sum(std::span<const double> weights);

// residual[i] = max(scale * p[i] - factor * q[i], 0); returns their sum. All of one length.
double WriteResidual(std::span<const float> p, double scale, std::span<const float> q,
                     double factor, std::span<double> residual);
double WriteResidual(std::span<const float> p, double scale, std::span<const double> q,
                     double factor, std::span<double> residual);
double WriteResidual(std::span<const double> p, double scale, std::span<const float> q,
                     double factor, std::span<double> residual);
double WriteResidual(std::span<const double> p, double scale, std::span<const double> q,
                     double factor, std::span<double> residual);

// Of two rows of probabilities: sum min(p, q), KL(p || q) in nats, +inf where p > 0 = q, and sum p +
// sum q. In float the logarithm has an absolute error below 1e-6.
struct RowOverlap {
  double overlap = 0;
  double kl = 0;
  double masses = 0;
};
RowOverlap Compare(std::span<const float> p, std::span<const float> q);

}  // namespace paceline
