#include "batch/request_verifier.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace paceline {
namespace {

// `status` of entry `entry` of the array `array`.
absl::Status InArray(std::string_view array, int64_t entry, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(std::string(array), "[", entry, "]: ", status.message()));
}

absl::Status SizeError(std::string_view array, std::string_view expected, int64_t got) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(array), ": expected ", std::string(expected), ", got ", got));
}

}  // namespace

absl::Status CheckContextFree(const SamplingOptions& options) {
  const auto refuse = [](std::string_view option, std::string_view needs) {
    return absl::UnimplementedError(absl::StrCat(
        std::string(option), ": expected off where rows come as arrays, since it needs ",
        std::string(needs), "; warp the rows with a Pipeline and bring probabilities"));
  };
  constexpr std::string_view kHistory = "the tokens before a row";
  if (options.guidance_scale != 1) return refuse("guidance_scale", "the unconditional row");
  if (!options.bad_words.empty()) return refuse("bad_words", kHistory);
  if (options.min_tokens > 0) return refuse("min_tokens", kHistory);
  if (options.repetition_penalty != 1) return refuse("repetition_penalty", kHistory);
  if (options.frequency_penalty != 0) return refuse("frequency_penalty", kHistory);
  if (options.presence_penalty != 0) return refuse("presence_penalty", kHistory);
  if (options.no_repeat_ngram_size > 0) return refuse("no_repeat_ngram_size", kHistory);
  if (options.dry_multiplier != 0) return refuse("dry_multiplier", kHistory);
  if (options.mirostat_tau != 0) return refuse("mirostat_tau", "the surprise of earlier tokens");
  return absl::OkStatus();
}

// Target rows made from their arrays when a rule first asks for them.
template <typename Real>
class RequestVerifier<Real>::ArrayRows : public TargetRows<Real> {
 public:
  // `pipeline` is null where the array holds probabilities.
  ArrayRows(RequestVerifier& memory, const VerifyRequest<Real>& request, Pipeline<Real>* pipeline,
            bool xtc_by_round)
      : memory_(memory), request_(request), pipeline_(pipeline), xtc_by_round_(xtc_by_round) {
    memory_.made_.assign(memory_.numbered_.tree.size() + 1, false);
    if (memory_.target_rows_.size() < memory_.made_.size()) {
      memory_.target_rows_.resize(memory_.made_.size());
    }
  }

  absl::StatusOr<const Distribution<Real>*> Row(int32_t node) override {
    Distribution<Real>& row = memory_.target_rows_[node + 1];
    if (memory_.made_[node + 1]) return &row;
    const int32_t entry = memory_.numbered_.EntryOf(node);
    const absl::Status status = Make(node, request_.target[entry], row);
    if (!status.ok()) return InArray("target", entry, status);
    memory_.made_[node + 1] = true;
    return &row;
  }

 private:
  absl::Status Make(int32_t node, std::span<const Real> from, Distribution<Real>& row) {
    if (pipeline_ == nullptr) return row.AssignProbs(from);
    const TokenTree& tree = memory_.numbered_.tree;
    const int32_t depth = tree.Depth(node);
    RowContext context;
    context.key = request_.key.stream;
    context.position = request_.key.position + static_cast<uint32_t>(depth);
    context.offset = static_cast<uint8_t>(depth);
    context.node = static_cast<uint16_t>(tree.IsChain() ? 0 : node + 1);
    context.xtc_by_round = xtc_by_round_;
    return pipeline_->Apply(from, context, row);
  }

  RequestVerifier& memory_;
  const VerifyRequest<Real>& request_;
  Pipeline<Real>* pipeline_;
  bool xtc_by_round_;
};

template <typename Real>
absl::Status RequestVerifier<Real>::AssignSparse(std::span<const Real> probs, const IdSpan& ids,
                                                 int32_t vocab_size, Distribution<Real>& row) {
  sorted_.clear();
  for (size_t i = 0; i < probs.size(); ++i) {
    const int64_t id = ids[static_cast<int64_t>(i)];
    if (id == -1) continue;
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "draft_ids[", i, "]: expected -1 or an id in [0, ", vocab_size, "), got ", id));
    }
    sorted_.push_back({static_cast<int32_t>(id), probs[i]});
  }
  // By id alone: a probability may be NaN, which has no order.
  std::sort(sorted_.begin(), sorted_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  ids_.clear();
  probs_.clear();
  for (const auto& [id, prob] : sorted_) {
    ids_.push_back(id);
    probs_.push_back(prob);
  }
  return row.AssignProbs(ids_, probs_, vocab_size);
}

template <typename Real>
absl::Status RequestVerifier<Real>::AddDraftRow(const VerifyRequest<Real>& request, int32_t entry) {
  if (request.draft.empty()) {
    proposal_.draft_rows.push_back(ProposalDist<Real>::Deterministic());
    return absl::OkStatus();
  }
  Distribution<Real> row;
  if (!spare_rows_.empty()) {
    row = std::move(spare_rows_.back());
    spare_rows_.pop_back();
  }
  const std::span<const Real> probs = request.draft[entry];
  const auto vocab_size = static_cast<int32_t>(request.target.width);
  const absl::Status status =
      request.draft_ids.empty()
          ? row.AssignProbs(probs)
          : AssignSparse(probs,
                         request.draft_ids.Part(entry * request.draft.width, request.draft.width),
                         vocab_size, row);
  proposal_.draft_rows.push_back(ProposalDist<Real>::Sampled(std::move(row)));
  return status.ok() ? status : InArray("draft", entry, status);
}

template <typename Real>
absl::Status RequestVerifier<Real>::MakeProposal(const VerifyRequest<Real>& request) {
  const auto vocab_size = static_cast<int32_t>(request.target.width);
  PACELINE_RETURN_IF_ERROR(MakeTree(request.drafted, vocab_size, numbered_));
  for (ProposalDist<Real>& dist : proposal_.draft_rows) {
    if (!dist.deterministic()) spare_rows_.push_back(std::move(dist).TakeRow());
  }
  proposal_.draft_rows.clear();
  proposal_.tree = numbered_.tree;
  for (int32_t node = -1; node < numbered_.tree.size(); ++node) {
    if (!numbered_.tree.HasChildren(node)) continue;
    PACELINE_RETURN_IF_ERROR(AddDraftRow(request, numbered_.EntryOf(node)));
  }
  return proposal_.Validate(vocab_size);
}

namespace {

// Sizes that the arrays of a request must have to be read at all.
template <typename Real>
absl::Status CheckSizes(const VerifyRequest<Real>& request) {
  const int64_t num_rows =
      request.drafted.tokens.size() + (request.drafted.first_child.empty() ? 1 : 0);
  if (request.target.num_rows != num_rows) {
    return SizeError("target", absl::StrCat(num_rows, " rows, one more than drafted tokens"),
                     request.target.num_rows);
  }
  if (request.target.width < 1 || request.target.width > std::numeric_limits<int32_t>::max()) {
    return SizeError("target", "rows of 1 to 2147483647 entries", request.target.width);
  }
  if (request.draft.empty()) return absl::OkStatus();
  const bool chain = request.drafted.parents.empty() && request.drafted.first_child.empty();
  const int64_t num_draft_rows = num_rows - (chain ? 1 : 0);
  if (request.draft.num_rows != num_draft_rows) {
    return SizeError("draft", absl::StrCat(num_draft_rows, " rows"), request.draft.num_rows);
  }
  const int64_t num_ids = request.draft_ids.size();
  if (num_ids == 0 && request.draft.width != request.target.width) {
    return SizeError("draft", absl::StrCat("rows of ", request.target.width, " entries, as target"),
                     request.draft.width);
  }
  if (num_ids != 0 && num_ids != request.draft.num_rows * request.draft.width) {
    return SizeError("draft_ids",
                     absl::StrCat(request.draft.num_rows * request.draft.width, ", as draft"),
                     num_ids);
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Real>
absl::StatusOr<const VerifyOutcome*> RequestVerifier<Real>::Verify(
    const VerifyRequest<Real>& request, const Rule& rule, const RuleOptions& options) {
  PACELINE_RETURN_IF_ERROR(CheckSizes(request));
  PACELINE_RETURN_IF_ERROR(MakeProposal(request));
  Pipeline<Real>* pipeline = nullptr;
  if (request.logits) {
    PACELINE_RETURN_IF_ERROR(CheckContextFree(*request.sampling));
    PACELINE_ASSIGN_OR_RETURN(
        pipeline, pipelines_.Find(*request.sampling, static_cast<int32_t>(request.target.width)));
  }
  ArrayRows rows(*this, request, pipeline, LooksAhead(rule));
  StreamRandomness randomness(request.key.stream, DrawMethodOf(rule, *request.sampling));
  memory_.GiveOutcome(std::move(outcome_));
  const RuleInput<Real> input{proposal_,         rows,    randomness, request.key.position, options,
                              /*figures=*/false, &memory_};
  PACELINE_ASSIGN_OR_RETURN(outcome_, VerifyBy(rule, input));
  return &outcome_;
}

template <typename Real>
absl::StatusOr<const Distribution<Real>*> RequestVerifier<Real>::Warp(
    std::span<const Real> logits, const SamplingOptions& sampling, const RequestKey& key) {
  PACELINE_RETURN_IF_ERROR(CheckContextFree(sampling));
  PACELINE_ASSIGN_OR_RETURN(Pipeline<Real> * pipeline,
                            pipelines_.Find(sampling, static_cast<int32_t>(logits.size())));
  if (target_rows_.empty()) target_rows_.resize(1);
  RowContext context;
  context.key = key.stream;
  context.position = key.position;
  PACELINE_RETURN_IF_ERROR(pipeline->Apply(logits, context, target_rows_.front()));
  return &target_rows_.front();
}

template <typename Real>
absl::StatusOr<const Distribution<Real>*> RequestVerifier<Real>::Check(
    std::span<const Real> probs) {
  if (target_rows_.empty()) target_rows_.resize(1);
  PACELINE_RETURN_IF_ERROR(target_rows_.front().AssignProbs(probs));
  return &target_rows_.front();
}

template class RequestVerifier<float>;
template class RequestVerifier<double>;

}  // namespace paceline
