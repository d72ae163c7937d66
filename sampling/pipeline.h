// A request's stages in order: logits and row context in, distribution out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sampling/candidates.h"
#include "sampling/distribution.h"
#include "sampling/options.h"
#include "sampling/row_context.h"

namespace paceline {

// What a stage does to the row decides where it may stand and whether temperature 0 runs it.
enum class StageKind {
  kEdit,    // Changes logits; before the first filter, at any temperature.
  kTemper,  // Divides them; not at temperature 0.
  kFilter,  // Drops tokens; not at temperature 0.
};

// One stage: a pure function of (logits, options, row context).
template <typename Real>
struct Stage {
  std::string_view name;
  StageKind kind;
  bool (*active)(
      const SamplingOptions& options);  // False for the off-value: the row stays as it is.
  void (*apply)(Candidates<Real>& candidates, const SamplingOptions& options,
                const RowContext& context);
};

// Every stage there is, in the default order (algorithms B.2). A new stage is one file and one row
// here.
template <typename Real>
std::span<const Stage<Real>> AllStages();

// Turns rows of logits into the distributions that tokens are drawn from. The same pipeline warps
// the target's rows and the draft's. Options are checked once; Apply is a pure function of its
// arguments (it reuses memory, so one pipeline serves one thread). Instantiated for float and
// double.
template <typename Real>
class Pipeline {
 public:
  // Errors: those of SamplingOptions::Validate; kInvalidArgument for an order that names an unknown
  // stage, one twice or an edit behind a filter, or lacks a stage that an option asks for, and for
  // mirostat with a filter.
  static absl::StatusOr<Pipeline> Create(SamplingOptions options, int32_t vocab_size);

  // Distribution of the row `logits`, at least vocab_size entries, of which later ones are padding.
  // Temperature 0: the edits up to temperature, then the whole mass on the argmax.
  // Errors: kInvalidArgument for NaN or +inf logits, kFailedPrecondition `no_token_left`.
  absl::StatusOr<Distribution<Real>> Apply(std::span<const float> logits,
                                           const RowContext& context);
  absl::StatusOr<Distribution<Real>> Apply(std::span<const double> logits,
                                           const RowContext& context);

  // The same into `row`, whose memory is used again. After an error it is unspecified.
  absl::Status Apply(std::span<const float> logits, const RowContext& context,
                     Distribution<Real>& row);
  absl::Status Apply(std::span<const double> logits, const RowContext& context,
                     Distribution<Real>& row);

  const SamplingOptions& options() const { return options_; }
  int32_t vocab_size() const { return vocab_size_; }
  bool greedy() const { return options_.temperature == 0; }
  // Whether the token is the likeliest of what the model gave below vocab_size.
  bool IsPlainArgmax() const { return stages_.empty() && greedy(); }
  // Whether rows come out as the softmax of what the model gave.
  bool IsPlainSoftmax() const { return stages_.empty() && !greedy(); }

 private:
  Pipeline(SamplingOptions options, int32_t vocab_size, std::vector<Stage<Real>> stages);
  template <typename Input>
  absl::Status Fill(std::span<const Input> logits, const RowContext& context,
                    Distribution<Real>& row);
  absl::Status Run(const RowContext& context, Distribution<Real>& row);

  SamplingOptions options_;
  int32_t vocab_size_;
  std::vector<Stage<Real>> stages_;  // The active ones, in order.
  Candidates<Real> candidates_;
};

extern template class Pipeline<float>;
extern template class Pipeline<double>;

}  // namespace paceline
