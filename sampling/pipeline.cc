#include "sampling/pipeline.h"

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bad_row.h"
#include "base/status_macros.h"
#include "sampling/cutoff.h"
#include "sampling/dry.h"
#include "sampling/guidance.h"
#include "sampling/logit_bias.h"
#include "sampling/mask.h"
#include "sampling/min_p.h"
#include "sampling/mirostat2.h"
#include "sampling/no_repeat_ngram.h"
#include "sampling/penalties.h"
#include "sampling/temperature.h"
#include "sampling/top_h.h"
#include "sampling/top_k.h"
#include "sampling/top_n_sigma.h"
#include "sampling/top_p.h"
#include "sampling/typical_p.h"
#include "sampling/xtc.h"

namespace paceline {

template <typename Real>
std::span<const Stage<Real>> AllStages() {
  constexpr StageKind kEdit = StageKind::kEdit;
  constexpr StageKind kFilter = StageKind::kFilter;
  static constexpr Stage<Real> kStages[] = {
      {"guidance", kEdit, GuidanceActive, ApplyGuidance<Real>},
      {"logit_bias", kEdit, LogitBiasActive, ApplyLogitBias<Real>},
      {"mask", kEdit, MaskActive, ApplyMask<Real>},
      {"penalties", kEdit, PenaltiesActive, ApplyPenalties<Real>},
      {"no_repeat_ngram", kEdit, NoRepeatNgramActive, ApplyNoRepeatNgram<Real>},
      {"dry", kEdit, DryActive, ApplyDry<Real>},
      {"temperature", StageKind::kTemper, TemperatureActive, ApplyTemperature<Real>},
      {"top_n_sigma", kFilter, TopNSigmaActive, ApplyTopNSigma<Real>},
      {"top_k", kFilter, TopKActive, ApplyTopK<Real>},
      {"top_p", kFilter, TopPActive, ApplyTopP<Real>},
      {"min_p", kFilter, MinPActive, ApplyMinP<Real>},
      {"typical_p", kFilter, TypicalPActive, ApplyTypicalP<Real>},
      {"epsilon_cutoff", kFilter, EpsilonCutoffActive, ApplyEpsilonCutoff<Real>},
      {"eta_cutoff", kFilter, EtaCutoffActive, ApplyEtaCutoff<Real>},
      {"top_h", kFilter, TopHActive, ApplyTopH<Real>},
      {"xtc", kFilter, XtcActive, ApplyXtc<Real>},
      {"mirostat2", kFilter, Mirostat2Active, ApplyMirostat2<Real>},
  };
  return kStages;
}

namespace {

using Names = std::vector<std::string>;

// An order by name, and what it sets besides. Where a project gives the mask no place it comes first.
struct NamedOrder {
  std::string_view name;
  absl::string_view stages;  // Separated by commas.
  void (*set)(SamplingOptions& options);
};

// Top-p behind top-k measured on the same row keeps the shorter of two prefixes of one rank order,
// which is top-p first and top-k of what it kept.
constexpr NamedOrder kOrders[] = {
    {"hf",
     "guidance,logit_bias,penalties,no_repeat_ngram,mask,temperature,top_k,top_p,min_p,"
     "typical_p,epsilon_cutoff,eta_cutoff",
     [](SamplingOptions& options) {
       options.ties = Ties::kValue;
       options.typical_mode = TypicalMode::kHf;
     }},
    {"vllm",
     "mask,logit_bias,penalties,temperature,min_p,top_k,top_p",
     [](SamplingOptions& options) { options.ties = Ties::kValue; }},
    {"llama",
     "mask,logit_bias,penalties,dry,top_n_sigma,top_k,typical_p,top_p,min_p,xtc,temperature",
     [](SamplingOptions& options) {
       options.ties = Ties::kRank;
       options.typical_mode = TypicalMode::kLlama;
       options.penalty_scope = PenaltyScope::kLastN;
     }},
    {"flashinfer-joint",
     "mask,logit_bias,penalties,temperature,top_p,top_k,min_p",
     [](SamplingOptions& options) { options.ties = Ties::kRank; }},
};

absl::Status OrderError(std::string expected, std::string got) {
  return absl::InvalidArgumentError(
      absl::StrCat("order: expected ", expected, ", got ", std::move(got)));
}

// The names of `options.order`, a named one spelled out with what it sets; all for the default.
Names SpellOut(SamplingOptions& options) {
  if (options.order.size() == 1) {
    for (const NamedOrder& order : kOrders) {
      if (options.order[0] != order.name) continue;
      order.set(options);
      return absl::StrSplit(order.stages, ',');
    }
  }
  if (!options.order.empty() && options.order != Names{"default"}) return options.order;
  Names names;
  for (const Stage<float>& stage : AllStages<float>()) names.emplace_back(stage.name);
  return names;
}

template <typename Real>
absl::StatusOr<std::vector<Stage<Real>>> StagesOf(const Names& names) {
  std::vector<Stage<Real>> stages;
  bool filtered = false;
  for (const std::string& name : names) {
    const bool whole = std::any_of(std::begin(kOrders), std::end(kOrders),
                                   [&](const NamedOrder& order) { return order.name == name; });
    if (whole) return OrderError("one named order, or names of stages", name + " in a list");
    const auto all = AllStages<Real>();
    const auto named = [&](const Stage<Real>& stage) { return stage.name == name; };
    const auto found = std::find_if(all.begin(), all.end(), named);
    if (found == all.end()) {
      return OrderError("default, hf, vllm, llama, flashinfer-joint or names of stages", name);
    }
    if (std::any_of(stages.begin(), stages.end(), named)) {
      return OrderError("every stage once", absl::StrCat(name, " again"));
    }
    if (filtered && found->kind == StageKind::kEdit) {
      return OrderError("stages that edit logits before filters", absl::StrCat(name, " behind one"));
    }
    filtered |= found->kind == StageKind::kFilter;
    stages.push_back(*found);
  }
  return stages;
}

// Every option that is on has its stage; mirostat stands alone among filters.
template <typename Real>
absl::Status CheckStages(const SamplingOptions& options, const std::vector<Stage<Real>>& stages) {
  for (const Stage<Real>& stage : AllStages<Real>()) {
    if (!stage.active(options)) continue;
    const bool has = std::any_of(stages.begin(), stages.end(), [&](const Stage<Real>& other) {
      return other.name == stage.name;
    });
    if (!has && !(options.temperature == 0 && stage.kind != StageKind::kEdit)) {
      return OrderError(absl::StrCat("the stage ", std::string(stage.name), ", which is on"),
                        absl::StrJoin(options.order, ","));
    }
    const bool other_filter = stage.kind == StageKind::kFilter && stage.name != "mirostat2";
    if (other_filter && Mirostat2Active(options)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mirostat_tau: expected no filter beside it, got ", std::string(stage.name)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Real>
Pipeline<Real>::Pipeline(SamplingOptions options, int32_t vocab_size,
                         std::vector<Stage<Real>> stages)
    : options_(std::move(options)), vocab_size_(vocab_size) {
  for (const Stage<Real>& stage : stages) {
    const bool runs = !greedy() || stage.kind == StageKind::kEdit;
    if (runs && stage.active(options_)) stages_.push_back(stage);
  }
}

template <typename Real>
absl::StatusOr<Pipeline<Real>> Pipeline<Real>::Create(SamplingOptions options, int32_t vocab_size) {
  const Names names = SpellOut(options);
  PACELINE_RETURN_IF_ERROR(options.Validate(vocab_size));
  PACELINE_ASSIGN_OR_RETURN(std::vector<Stage<Real>> stages, StagesOf<Real>(names));
  PACELINE_RETURN_IF_ERROR(CheckStages(options, stages));
  return Pipeline(std::move(options), vocab_size, std::move(stages));
}

template <typename Real>
template <typename Input>
absl::Status Pipeline<Real>::Fill(std::span<const Input> logits, const RowContext& context,
                                  Distribution<Real>& row) {
  if constexpr (std::is_same_v<Real, Input>) {
    if (IsPlainSoftmax()) {
      PACELINE_RETURN_IF_ERROR(CheckLogits(logits, vocab_size_));
      return row.AssignSoftmax(logits.first(vocab_size_));
    }
  }
  PACELINE_RETURN_IF_ERROR(candidates_.Assign(logits, vocab_size_));
  return Run(context, row);
}

template <typename Real>
absl::Status Pipeline<Real>::Apply(std::span<const float> logits, const RowContext& context,
                                   Distribution<Real>& row) {
  return Fill(logits, context, row);
}

template <typename Real>
absl::Status Pipeline<Real>::Apply(std::span<const double> logits, const RowContext& context,
                                   Distribution<Real>& row) {
  return Fill(logits, context, row);
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Pipeline<Real>::Apply(std::span<const float> logits,
                                                         const RowContext& context) {
  Distribution<Real> row;
  PACELINE_RETURN_IF_ERROR(Fill(logits, context, row));
  return row;
}

template <typename Real>
absl::StatusOr<Distribution<Real>> Pipeline<Real>::Apply(std::span<const double> logits,
                                                         const RowContext& context) {
  Distribution<Real> row;
  PACELINE_RETURN_IF_ERROR(Fill(logits, context, row));
  return row;
}

template <typename Real>
absl::Status Pipeline<Real>::Run(const RowContext& context, Distribution<Real>& row) {
  for (const Stage<Real>& stage : stages_) stage.apply(candidates_, options_, context);
  if (!greedy()) return row.AssignSoftmax(candidates_);
  const auto logits = candidates_.dense();
  const auto best = std::max_element(logits.begin(), logits.end());
  if (!(*best > -std::numeric_limits<Real>::infinity())) {
    return NoTokenLeft();
  }
  row.AssignOneHot(static_cast<int32_t>(best - logits.begin()), vocab_size_);
  return absl::OkStatus();
}

template std::span<const Stage<float>> AllStages<float>();
template std::span<const Stage<double>> AllStages<double>();
template class Pipeline<float>;
template class Pipeline<double>;

}  // namespace paceline
