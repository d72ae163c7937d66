#include "runtime/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "sampling/guidance.h"
#include "sampling/mirostat2.h"

namespace paceline {
namespace {

// The node whose row judged or drew the i-th token of a round.
int32_t RowNode(const VerifyOutcome& outcome, size_t i) {
  return i == 0 ? -1 : outcome.path[i - 1];
}

int32_t NodesWithin(const TokenTree& tree, int32_t depth) {
  int32_t count = 0;
  for (int32_t node = 0; node < tree.size(); ++node) count += tree.Depth(node) <= depth;
  return count;
}

}  // namespace

std::vector<int32_t> EndIds(const GenerationRequest& request, const Vocabulary& vocabulary) {
  std::vector<int32_t> ids = request.stop_ids;
  if (!request.ignore_eos) {
    ids.insert(ids.end(), vocabulary.end_ids.begin(), vocabulary.end_ids.end());
  }
  return ids;
}

std::vector<std::span<const int32_t>> PromptsOf(const GenerationRequest& request) {
  const std::span<const int32_t> prompt(request.prompt);
  if (!GuidanceActive(request.sampling)) return {prompt};
  const std::span<const int32_t> negative(request.negative_prompt);
  return {prompt, negative.empty() ? prompt.last(1) : negative};
}

Sequence::Sequence(Parts parts, std::vector<SequenceId> caches)
    : parts_(std::move(parts)),
      caches_(std::move(caches)),
      committed_(parts_.request->prompt),
      prompt_length_(static_cast<int32_t>(committed_.size())),
      mirostat_mu_(FirstMu(parts_.pipeline.options())),
      end_ids_(EndIds(*parts_.request, *parts_.vocabulary)),
      draw_(DrawMethodOf(*parts_.rule, parts_.request->sampling)),
      randomness_(parts_.key, draw_),
      text_(parts_.request->stop) {
  counts_.AddPrompt(committed_);
  if (parts_.request->max_tokens == 0) Finish(FinishReason::kLength);
}

int32_t Sequence::DraftBudget() const {
  const SpeculationOptions& speculation = parts_.request->speculation;
  const int32_t length = static_cast<int32_t>(committed_.size());
  const int32_t output_left = parts_.request->max_tokens - (length - prompt_length_);
  const int32_t context_left = parts_.context_length - length;
  // A round emits one token more than it drafts.
  const int32_t most = std::min(output_left, context_left) - 1;
  const int32_t budget = std::min(speculation.num_draft_tokens, most);
  return budget < speculation.draft_min ? 0 : std::max(budget, 0);
}

absl::Status Sequence::Draft() {
  proposal_ = Proposal<float>();
  const int32_t budget = DraftBudget();
  if (parts_.drafter == nullptr || budget == 0) return absl::OkStatus();
  const bool shared_noise = parts_.rule->group == RuleGroup::kCoupled;
  absl::StatusOr<Proposal<float>> proposal = parts_.drafter->Propose(
      {committed_, prompt_length_, &counts_, parts_.key, draw_, LooksAhead(*parts_.rule),
       mirostat_mu_, shared_noise, caches_.front(), budget});
  if (!proposal.ok()) return AsOurFault(proposal.status());
  PACELINE_RETURN_IF_ERROR(AsOurFault(proposal->Validate(parts_.vocabulary->size)));
  proposal_ = *std::move(proposal);
  // What was drawn must be judged: dropping it for its length would favour some draws over others.
  const bool short_draft = proposal_.tree.size() < parts_.request->speculation.draft_min;
  if (short_draft && proposal_.deterministic()) proposal_ = Proposal<float>();
  return absl::OkStatus();
}

void Sequence::AddTo(std::vector<ScoreRequest>& requests) const {
  for (const SequenceId cache : caches_) {
    requests.push_back({cache, committed_.back(), &proposal_.tree});
  }
  // Before the first output the second stream ends with a token of its own prompt.
  const bool guided = caches_.size() > 1;
  if (guided && static_cast<int32_t>(committed_.size()) == prompt_length_) {
    requests.back().last_token = PromptsOf(*parts_.request).back().back();
  }
}

WarpedRows Sequence::RowsOver(WarpedRows::RawRow raw) {
  RowContext context;
  context.history = {committed_, prompt_length_, {}, &counts_};
  context.key = parts_.key;
  context.position = static_cast<uint32_t>(committed_.size());
  context.xtc_by_round = LooksAhead(*parts_.rule);
  context.mirostat_mu = mirostat_mu_;
  return WarpedRows(proposal_.tree, context, std::move(raw), parts_.pipeline, row_memory_);
}

absl::StatusOr<VerifyOutcome> Sequence::Judge(WarpedRows& rows) {
  absl::StatusOr<VerifyOutcome> outcome =
      parts_.rule->verify({proposal_, rows, randomness_, static_cast<uint32_t>(committed_.size()),
                           parts_.request->speculation.rule, /*figures=*/true, &rule_memory_});
  if (!outcome.ok()) return AsOurFault(outcome.status());
  return outcome;
}

// The request was checked at admission: a row that cannot be used is the model's fault, or ours.
absl::Status Sequence::AsOurFault(const absl::Status& status) const {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InternalError(absl::StrCat("position ", committed_.size(), ": ", status.message()));
}

bool Sequence::Ends(int32_t token) const {
  return std::find(end_ids_.begin(), end_ids_.end(), token) != end_ids_.end();
}

void Sequence::Finish(FinishReason reason) {
  finished_ = true;
  choice_.finish_reason = reason;
}

Cut Sequence::CutAtEnding(const VerifyOutcome& outcome) {
  const int32_t room = std::min(
      parts_.request->max_tokens - (static_cast<int32_t>(committed_.size()) - prompt_length_),
      parts_.context_length - static_cast<int32_t>(committed_.size()));
  Cut cut;
  for (size_t i = 0; i <= outcome.path.size() && !finished_; ++i) {
    const bool accepted = i < outcome.path.size();
    const int32_t token = accepted ? proposal_.tree.tokens[outcome.path[i]] : outcome.next_token;
    cut.tokens.push_back(token);
    cut.num_accepted += accepted;
    const bool ends = Ends(token);
    cut.texts.push_back(ends ? "" : text_.Push(parts_.vocabulary->piece(token)));
    if (ends || text_.stopped()) {
      Finish(FinishReason::kStop);
    } else if (static_cast<int32_t>(cut.tokens.size()) == room) {
      Finish(FinishReason::kLength);
    }
    if (finished_) {
      cut.texts.back() += text_.Finish();
      cut.in_path = accepted;
    }
  }
  const auto kept = std::span(outcome.path).first(cut.tokens.size() - 1);
  cut.path.assign(kept.begin(), kept.end());
  return cut;
}

absl::Status Sequence::Commit(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows) {
  Measure(cut, outcome, rows);
  PACELINE_RETURN_IF_ERROR(AddLogProbs(cut, outcome, rows));
  PACELINE_RETURN_IF_ERROR(MoveMu(cut, outcome, rows));
  Report(cut, outcome);
  committed_.insert(committed_.end(), cut.tokens.begin(), cut.tokens.end());
  counts_.AddOutput(cut.tokens);
  if (parts_.drafter == nullptr) return absl::OkStatus();
  return parts_.drafter->Commit(committed_);
}

void Sequence::Measure(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows) {
  Telemetry& telemetry = choice_.telemetry;
  const int32_t depth = cut.in_path ? cut.num_accepted : proposal_.tree.MaxDepth();
  telemetry.AddRound(NodesWithin(proposal_.tree, depth), depth, cut.num_accepted,
                     static_cast<int32_t>(cut.tokens.size()));
  const size_t num_judged =
      cut.in_path ? static_cast<size_t>(cut.num_accepted) : outcome.judged.size();
  for (size_t i = 0; i < num_judged; ++i) {
    telemetry.AddJudged(outcome.judged[i]);
    const int32_t node = RowNode(outcome, i);
    const absl::StatusOr<const Distribution<float>*> row = rows.Row(node);  // Made by the rule.
    if (!row.ok()) continue;
    const double warped_bits = (*row)->EntropyBits();
    telemetry.entropy_bits_warped.Add(warped_bits);
    telemetry.entropy_bits_raw.Add(parts_.pipeline.IsPlainSoftmax()
                                       ? warped_bits
                                       : RawEntropyBits(rows.Raw(node), parts_.vocabulary->size));
    telemetry.survivors.Add(static_cast<double>((*row)->NumSurvivors()));
  }
}

// Over the committed tokens alone, each in the row that judged it.
absl::Status Sequence::MoveMu(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows) {
  const SamplingOptions& options = parts_.pipeline.options();
  if (!Mirostat2Active(options) || parts_.pipeline.greedy()) return absl::OkStatus();
  for (size_t i = 0; i < cut.tokens.size(); ++i) {
    PACELINE_ASSIGN_OR_RETURN(const Distribution<float>* row, rows.Row(RowNode(outcome, i)));
    mirostat_mu_ = NextMu(options, mirostat_mu_, row->Prob(cut.tokens[i]));
  }
  return absl::OkStatus();
}

absl::Status Sequence::AddLogProbs(const Cut& cut, const VerifyOutcome& outcome, WarpedRows& rows) {
  const int32_t num_top = parts_.request->num_logprobs;
  for (size_t i = 0; i < cut.tokens.size(); ++i) {
    const int32_t node = RowNode(outcome, i);
    PACELINE_ASSIGN_OR_RETURN(const Distribution<float>* row, rows.Row(node));
    choice_.cumulative_log_prob += std::log(static_cast<double>(row->Prob(cut.tokens[i])));
    if (num_top < 0) continue;
    choice_.raw_logprobs.push_back(
        RawLogProbs(rows.Raw(node), parts_.vocabulary->size, cut.tokens[i], num_top));
    choice_.processed_logprobs.push_back(ProcessedLogProbs(*row, cut.tokens[i], num_top));
  }
  return absl::OkStatus();
}

void Sequence::Report(const Cut& cut, const VerifyOutcome& outcome) {
  const auto first = static_cast<uint32_t>(committed_.size());
  const Observer& observer = *parts_.observer;
  for (uint32_t i = 0; observer.on_token && i < cut.tokens.size(); ++i) {
    const bool accepted = i < static_cast<uint32_t>(cut.num_accepted);
    observer.on_token({parts_.choice_number, first + i, cut.tokens[i],
                       accepted ? Decision::kAccepted : outcome.trace.back().decision,
                       cut.texts[i]});
  }
  if (!observer.on_trace) return;
  const auto after = std::find_if(
      outcome.trace.begin(), outcome.trace.end(),
      [&](const TokenTrace& entry) { return entry.position >= first + cut.tokens.size(); });
  observer.on_trace(parts_.choice_number, {outcome.trace.begin(), after});
}

void Sequence::Interrupt() {
  Finish(FinishReason::kInterrupted);
  const std::string rest = text_.Finish();
  if (!parts_.observer->on_token || rest.empty()) return;
  parts_.observer->on_token(
      {parts_.choice_number, static_cast<uint32_t>(committed_.size()), -1, Decision::kPlain, rest});
}

void Sequence::Fail(absl::Status status) {
  Interrupt();
  choice_.status = std::move(status);
}

Choice Sequence::TakeChoice() {
  choice_.tokens.assign(committed_.begin() + prompt_length_, committed_.end());
  choice_.text = text_.text();
  return std::move(choice_);
}

}  // namespace paceline
