// Pipelines of the settings that came last.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "sampling/pipeline.h"

namespace paceline {

// Keeps as many pipelines as a batch has different settings, up to 64, and the memory they work in.
// Not thread-safe.
template <typename Real>
class PipelineCache {
 public:
  // The pipeline of `options`, valid until the next call. Errors: those of Pipeline::Create.
  absl::StatusOr<Pipeline<Real>*> Find(const SamplingOptions& options, int32_t vocab_size) {
    for (auto& [made_from, pipeline] : pipelines_) {
      if (pipeline.vocab_size() == vocab_size && made_from == options) return &pipeline;
    }
    PACELINE_ASSIGN_OR_RETURN(Pipeline<Real> pipeline, Pipeline<Real>::Create(options, vocab_size));
    if (pipelines_.size() == kMost) pipelines_.pop_front();
    pipelines_.emplace_back(options, std::move(pipeline));
    return &pipelines_.back().second;
  }

 private:
  static constexpr size_t kMost = 64;
  // With the options as they came: those of a pipeline have a named order spelled out.
  std::deque<std::pair<SamplingOptions, Pipeline<Real>>> pipelines_;
};

}  // namespace paceline
