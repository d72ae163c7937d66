#include "runtime/engine_difference.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"
#include "sampling/row_math.h"

namespace paceline {
namespace {

constexpr size_t kPiece = 64;  // Rows compared at a time.

size_t Argmax(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

// In double: differences of rounding are what is measured.
double Kl(std::span<const float> reference, std::span<const float> engine) {
  const auto log_mass = [](std::span<const float> row) {
    const double max = RowMax(row);
    double mass = 0;
    for (const float logit : row) mass += std::exp(logit - max);
    return max + std::log(mass);
  };
  const double p_mass = log_mass(reference);
  const double q_mass = log_mass(engine);
  double kl = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double log_p = reference[i] - p_mass;
    kl += std::exp(log_p) * (log_p - (engine[i] - q_mass));
  }
  return kl;
}

absl::Status AddPieces(LanguageModel& reference, SequenceId of_reference, LanguageModel& engine,
                       SequenceId of_engine, int32_t vocab_size, std::span<const int32_t> tokens,
                       EngineDifference& difference) {
  for (size_t first = 0; first < tokens.size(); first += kPiece) {
    const auto piece = tokens.subspan(first, std::min(kPiece, tokens.size() - first));
    PACELINE_ASSIGN_OR_RETURN(const ForwardOutput expected,
                              reference.Forward({{{of_reference, piece, {}, RowWish::kAll}}}));
    PACELINE_ASSIGN_OR_RETURN(const ForwardOutput got,
                              engine.Forward({{{of_engine, piece, {}, RowWish::kAll}}}));
    for (int64_t row = 0; row < expected.num_rows(); ++row) {
      const auto p = expected.Row(row).first(vocab_size);
      const auto q = got.Row(row).first(vocab_size);
      difference.kl.push_back(Kl(p, q));
      difference.num_same_argmax += Argmax(p) == Argmax(q);
      ++difference.num_positions;
    }
  }
  return absl::OkStatus();
}

}  // namespace

double EngineDifference::MeanKl() const {
  double sum = 0;
  for (const double value : kl) sum += value;
  return sum / static_cast<double>(kl.size());
}

double EngineDifference::KlQuantile(double share) const {
  std::vector<double> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

double EngineDifference::Agreement() const {
  return static_cast<double>(num_same_argmax) / static_cast<double>(num_positions);
}

absl::Status AddDifference(LanguageModel& reference, LanguageModel& engine, int32_t vocab_size,
                           std::span<const int32_t> tokens, EngineDifference& difference) {
  const SequenceId of_reference = reference.cache().Create();
  const SequenceId of_engine = engine.cache().Create();
  absl::Status status = AddPieces(reference, of_reference, engine, of_engine, vocab_size, tokens,
                                  difference);
  status.Update(reference.cache().Release(of_reference));
  status.Update(engine.cache().Release(of_engine));
  return status;
}

}  // namespace paceline
