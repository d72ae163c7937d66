// Verification of one request whose logits and drafted tokens lie in arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/philox.h"
#include "batch/arrays.h"
#include "batch/pipeline_cache.h"
#include "batch/tree_layout.h"
#include "sampling/options.h"
#include "sampling/proposal.h"
#include "verify/rules.h"

namespace paceline {

// Where the random numbers of a request come from (algorithms A.2).
struct RequestKey {
  StreamKey stream;
  uint32_t position = 0;  // Of the first drafted token: the number of committed ones.
};

// What one request brings; views. n drafted tokens, rows of `vocab_size` = target.width entries.
template <typename Real>
struct VerifyRequest {
  DraftedTokens drafted;
  // [n + 1, V]: row 0 judges the children of the root, row i those of entry i.
  RowSpan<Real> target;
  bool logits = true;  // What `target` holds: logits, warped as `sampling` says, or probabilities.
  // Rows that tokens were drawn from, row i the children of entry i; trees have one for each of n +
  // 1 entries, read where there are children, chains one a token. Dense [., V], or probabilities
  // [., S] of `draft_ids` [., S], of which -1 is no token. None: every token was picked (q is
  // one-hot).
  RowSpan<Real> draft;
  IdSpan draft_ids;
  RequestKey key;
  const SamplingOptions* sampling = nullptr;  // Of rows of logits, and of draws; not null.
};

// kUnimplemented naming the first option that is on and needs what arrays of logits do not tell:
// the tokens before a row, a second row, or what happened in earlier rounds.
absl::Status CheckContextFree(const SamplingOptions& options);

// Verifies one request after another in memory that they share: after the first few, nothing is
// allocated. A thread has one of its own. Instantiated for float and double.
template <typename Real>
class RequestVerifier {
 public:
  // What `rule` decides; valid until the next call. Nodes are those of tree(). Errors:
  // kInvalidArgument naming the array and the entry for what is not sound, kFailedPrecondition
  // `no_token_left`, kUnimplemented as CheckContextFree.
  absl::StatusOr<const VerifyOutcome*> Verify(const VerifyRequest<Real>& request, const Rule& rule,
                                              const RuleOptions& options);

  // Of the last request.
  const NumberedTree& tree() const { return numbered_; }

  // The distribution of one row of logits at the position of `key`; valid until the next call.
  absl::StatusOr<const Distribution<Real>*> Warp(std::span<const Real> logits,
                                                 const SamplingOptions& sampling,
                                                 const RequestKey& key);
  // One row of probabilities, checked; as Warp.
  absl::StatusOr<const Distribution<Real>*> Check(std::span<const Real> probs);

 private:
  class ArrayRows;

  absl::Status MakeProposal(const VerifyRequest<Real>& request);
  absl::Status AddDraftRow(const VerifyRequest<Real>& request, int32_t entry);
  absl::Status AssignSparse(std::span<const Real> probs, const IdSpan& ids, int32_t vocab_size,
                            Distribution<Real>& row);

  NumberedTree numbered_;
  Proposal<Real> proposal_;
  std::vector<Distribution<Real>> spare_rows_;
  std::vector<Distribution<Real>> target_rows_;  // Entry node + 1.
  std::vector<bool> made_;                       // Those of this request.
  std::vector<std::pair<int32_t, Real>> sorted_;
  std::vector<int32_t> ids_;
  std::vector<Real> probs_;
  PipelineCache<Real> pipelines_;
  RuleMemory memory_;
  VerifyOutcome outcome_;
};

extern template class RequestVerifier<float>;
extern template class RequestVerifier<double>;

}  // namespace paceline
