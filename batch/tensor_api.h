// Verification and sampling over tensors, for serving stacks that have models of their own.
//
// Everything is computed on the CPU; tensors elsewhere are refused as kUnimplemented. Token ids,
// counts and node numbers are int32 or int64, logits float32, float64, float16 or bfloat16,
// probabilities float32 or float64. The arithmetic is that of float64 for float64 and float32
// otherwise. Tensors that are not contiguous and logits of 16 bits are copied first. Requests of a
// batch do not know of each other: each is a function of its own rows, key and settings, and runs
// on one of torch's threads (at::set_num_threads).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "batch/request_verifier.h"

namespace paceline {

// Drafted tokens of B requests. Those that a layout does not name are undefined.
//
//   padded chains   tokens [B, K], -1 behind the end of a shorter draft
//   ragged chains   tokens [N], cu_num_draft [B]: how many tokens the requests up to and with this
//   one
//                   have; none has more than max_draft
//   trees           tokens [B, K], -1 behind the last node; parents [B, K], earlier nodes or -1,
//   the root linked trees    tokens, first_child, next_sibling [B, K + 1], entry 0 the root, -1 for
//   none
struct DraftTensors {
  at::Tensor tokens;
  at::Tensor cu_num_draft;
  int64_t max_draft = 0;
  at::Tensor parents;
  at::Tensor first_child;
  at::Tensor next_sibling;
  // Probabilities of the rows that the tokens were drawn from, one a token in chains ([B, K, .], or
  // [N, .]), in trees one for each of K + 1 entries, the root first ([B, K + 1, .]), read where an
  // entry has children. Undefined: every token was picked.
  at::Tensor probs;  // [..., V]; with `ids` [..., S]
  at::Tensor ids;    // [..., S], -1 is no token
};

// Logits, or probabilities, that judge them: [B, K + 1, V], row 0 for the children of the root; of
// ragged chains [N + B, V], for each request a row a token and one behind them.
struct TargetTensor {
  at::Tensor rows;
  bool logits = true;
};

// Where random numbers come from: [B], or one for all. Seeds are 64 bits, streams and positions 32.
struct KeyTensors {
  at::Tensor seeds;
  at::Tensor streams;    // Undefined: 0.
  at::Tensor positions;  // Of the first drafted token.
};

struct VerifySettings {
  const Rule* rule = nullptr;
  RuleOptions options;
  std::span<const SamplingOptions> sampling;  // One for all, or one a request.
};

// What comes out, of the type of the drafted tokens; in the memory it has if that fits. A request
// that failed has -1 everywhere.
struct VerifyResult {
  at::Tensor tokens;  // [B, K + 1] (ragged: max_draft + 1): accepted, then the last one, then -1
  at::Tensor num_accepted;  // [B]
  at::Tensor path;          // [B, K]: nodes that were accepted, as the layout counts them, then -1
};

// Memory of one caller, used again from call to call. Not thread-safe.
class Workspace {
 public:
  template <typename Real>
  std::vector<RequestVerifier<Real>>& Verifiers();    // One for each of torch's threads.
  std::vector<absl::Status>& Statuses(size_t count);  // All OK.

 private:
  std::vector<RequestVerifier<float>> float_;
  std::vector<RequestVerifier<double>> double_;
  std::vector<absl::Status> statuses_;
};

// Verifies every request of a batch. After the first calls of one shape nothing is allocated but
// what copies need. Errors: kInvalidArgument naming the tensor, what is expected and what came; for
// what is wrong with the entries of one request, its error behind `request b: `, after all the
// others are done.
absl::Status Verify(const DraftTensors& draft, const TargetTensor& target, const KeyTensors& keys,
                    const VerifySettings& settings, Workspace& workspace, VerifyResult& result);

// The distributions of rows of logits [B, V] or [B, R, V], of which the b-th is warped by the b-th
// setting, or by the only one. Errors count rows over all requests. `probs` is of their shape,
// float64 for float64 and float32 otherwise.
absl::Status WarpProbs(const at::Tensor& logits, std::span<const SamplingOptions> sampling,
                       Workspace& workspace, at::Tensor& probs);

// Draws a token from each row [B, V]: the token of its position, or where `draft_index` [B] is
// defined the draft_index-th of a draft that begins at `position`, with the number that a drafter
// uses there. `tokens` [B], int64.
absl::Status Sample(const TargetTensor& rows, const KeyTensors& keys, const at::Tensor& draft_index,
                    std::span<const SamplingOptions> sampling, Workspace& workspace,
                    at::Tensor& tokens);

}  // namespace paceline
