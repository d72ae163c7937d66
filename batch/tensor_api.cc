#include "batch/tensor_api.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "sampling/draw.h"

namespace paceline {
namespace {

// --- What came, for errors ---

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

absl::Status TensorError(std::string_view name, std::string_view expected,
                         const at::Tensor& tensor) {
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(name), ": expected ", std::string(expected), ", got ", Describe(tensor)));
}

// --- Tensors as arrays ---

// A tensor that can be read as one array.
absl::StatusOr<at::Tensor> OnCpu(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) return TensorError(name, "a tensor", tensor);
  if (!tensor.device().is_cpu()) {
    return absl::UnimplementedError(absl::StrCat(
        std::string(name), ": expected a tensor on the CPU, got one on ", tensor.device().str()));
  }
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    return TensorError(name, "a dense tensor", tensor);
  }
  return tensor.contiguous();
}

// An array together with the tensor that it is in, which may be a copy made for it.
struct Ids {
  at::Tensor tensor;
  IdSpan span;
};

// Ids of shape `sizes`; without a shape, of any.
absl::StatusOr<Ids> IdsOf(std::string_view name, const at::Tensor& tensor,
                          std::optional<at::IntArrayRef> sizes = std::nullopt) {
  PACELINE_ASSIGN_OR_RETURN(at::Tensor array, OnCpu(name, tensor));
  const bool narrow = array.scalar_type() == at::kInt;
  if ((!narrow && array.scalar_type() != at::kLong) || (sizes && array.sizes() != *sizes)) {
    std::ostringstream expected;
    expected << "int32 or int64";
    if (sizes) expected << " " << *sizes;
    return TensorError(name, expected.str(), tensor);
  }
  const IdSpan span = narrow ? IdSpan(array.const_data_ptr<int32_t>(), array.numel())
                             : IdSpan(array.const_data_ptr<int64_t>(), array.numel());
  return Ids{std::move(array), span};
}

template <typename Real>
struct Rows {
  at::Tensor tensor;
  RowSpan<Real> span;
};

template <typename Real>
constexpr at::ScalarType kTypeOf = std::is_same_v<Real, double> ? at::kDouble : at::kFloat;

bool IsHalf(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

// The rows along the last dimension, in Real. Probabilities of 16 bits are too coarse to be exact.
template <typename Real>
absl::StatusOr<Rows<Real>> RowsOf(std::string_view name, const at::Tensor& tensor, bool logits) {
  PACELINE_ASSIGN_OR_RETURN(at::Tensor array, OnCpu(name, tensor));
  const at::ScalarType type = array.scalar_type();
  const bool known = type == at::kFloat || type == at::kDouble || (logits && IsHalf(type));
  if (!known || array.dim() == 0) {
    return TensorError(
        name,
        logits ? "rows of float16, bfloat16, float32 or float64" : "rows of float32 or float64",
        tensor);
  }
  if (type != kTypeOf<Real>) array = array.to(kTypeOf<Real>);
  const int64_t width = array.size(-1);
  const int64_t num_rows = width == 0 ? 0 : array.numel() / width;
  const RowSpan<Real> span{array.const_data_ptr<Real>(), num_rows, width};
  return Rows<Real>{std::move(array), span};
}

// --- Keys and settings of each request ---

// One number a request, or one for all.
struct PerRequest {
  Ids ids;
  int64_t operator[](int64_t i) const { return ids.span[ids.span.size() == 1 ? 0 : i]; }
};

absl::StatusOr<PerRequest> PerRequestOf(std::string_view name, const at::Tensor& tensor,
                                        int64_t num_requests, int64_t most) {
  PACELINE_ASSIGN_OR_RETURN(Ids ids, IdsOf(name, tensor));
  if (ids.tensor.dim() > 1 || (ids.span.size() != 1 && ids.span.size() != num_requests)) {
    return TensorError(name, absl::StrCat("one number, or ", num_requests, ", one a request"),
                       tensor);
  }
  for (int64_t i = 0; i < ids.span.size() && most > 0; ++i) {
    if (ids.span[i] >= 0 && ids.span[i] <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(name), "[", i, "]: expected a number in [0, ", most, "], got ", ids.span[i]));
  }
  return PerRequest{std::move(ids)};
}

constexpr int64_t kMostPosition = std::numeric_limits<uint32_t>::max() - (int64_t{1} << 16);

class Keys {
 public:
  static absl::StatusOr<Keys> Of(const KeyTensors& tensors, int64_t num_requests) {
    Keys keys;
    PACELINE_ASSIGN_OR_RETURN(keys.seeds_, PerRequestOf("seeds", tensors.seeds, num_requests, 0));
    PACELINE_ASSIGN_OR_RETURN(
        keys.positions_, PerRequestOf("positions", tensors.positions, num_requests, kMostPosition));
    if (!tensors.streams.defined()) return keys;
    PACELINE_ASSIGN_OR_RETURN(keys.streams_, PerRequestOf("streams", tensors.streams, num_requests,
                                                          std::numeric_limits<uint32_t>::max()));
    return keys;
  }

  RequestKey operator[](int64_t i) const {
    const bool streams = streams_.ids.tensor.defined();
    return {{static_cast<uint64_t>(seeds_[i]), static_cast<uint32_t>(streams ? streams_[i] : 0)},
            static_cast<uint32_t>(positions_[i])};
  }

 private:
  PerRequest seeds_;
  PerRequest streams_;
  PerRequest positions_;
};

absl::Status CheckSampling(std::span<const SamplingOptions> sampling, int64_t num_requests) {
  if (sampling.size() == 1 || static_cast<int64_t>(sampling.size()) == num_requests) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("sampling: expected one setting, or ",
                                                 num_requests, ", one a request, got ",
                                                 sampling.size()));
}

const SamplingOptions& SamplingOf(std::span<const SamplingOptions> sampling, int64_t request) {
  return sampling[sampling.size() == 1 ? 0 : request];
}

// --- Layouts ---

// Where the tokens and rows of each request lie.
struct Layout {
  Ids tokens;
  Ids cu_num_draft;  // Ragged alone.
  Ids parents;
  Ids first_child;
  Ids next_sibling;
  int64_t num_requests = 0;
  int64_t width = 0;  // Tokens a request has at most, the root of a linked tree included.
  bool linked = false;
  bool tree = false;

  bool ragged() const { return cu_num_draft.tensor.defined(); }
  int64_t most_drafted() const { return width - (linked ? 1 : 0); }
  int64_t FirstToken(int64_t request) const {
    if (!ragged()) return request * width;
    return request == 0 ? 0 : cu_num_draft.span[request - 1];
  }
  int64_t NumTokens(int64_t request) const {
    return ragged() ? cu_num_draft.span[request] - FirstToken(request) : width;
  }
  // Before each request lies a row more than tokens for every request before it.
  int64_t FirstTarget(int64_t request) const {
    return FirstToken(request) + (linked ? 0 : request);
  }
  int64_t NumTargets(int64_t request) const { return NumTokens(request) + (linked ? 0 : 1); }
  int64_t FirstDraft(int64_t request) const {
    return tree ? FirstTarget(request) : FirstToken(request);
  }
  int64_t NumDrafts(int64_t request) const {
    return tree ? NumTargets(request) : NumTokens(request);
  }

  int64_t NumTargetsOfAll() const { return FirstTarget(num_requests); }
  int64_t NumDraftsOfAll() const { return FirstDraft(num_requests); }

  DraftedTokens TokensOf(int64_t request) const {
    const int64_t first = FirstToken(request);
    const int64_t count = NumTokens(request);
    const auto part = [&](const Ids& ids) {
      return ids.tensor.defined() ? ids.span.Part(first, count) : IdSpan();
    };
    return {part(tokens), part(parents), part(first_child), part(next_sibling)};
  }
};

absl::Status CheckCounts(const IdSpan& counts, int64_t num_tokens, int64_t max_draft) {
  int64_t before = 0;
  for (int64_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < before || counts[i] - before > max_draft) {
      return absl::InvalidArgumentError(absl::StrCat("cu_num_draft[", i,
                                                     "]: expected a number in [", before, ", ",
                                                     before + max_draft, "], got ", counts[i]));
    }
    before = counts[i];
  }
  if (before == num_tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cu_num_draft: expected the last to be ",
                                                 num_tokens, ", all drafted tokens, got ", before));
}

absl::StatusOr<Layout> LayoutOf(const DraftTensors& draft) {
  Layout layout;
  PACELINE_ASSIGN_OR_RETURN(layout.tokens, IdsOf("draft_tokens", draft.tokens));
  const at::Tensor& tokens = layout.tokens.tensor;
  if (draft.cu_num_draft.defined()) {
    PACELINE_ASSIGN_OR_RETURN(layout.cu_num_draft, IdsOf("cu_num_draft", draft.cu_num_draft));
    if (tokens.dim() != 1 || layout.cu_num_draft.tensor.dim() != 1) {
      return TensorError("draft_tokens", "[N] beside cu_num_draft [B]", draft.tokens);
    }
    if (draft.max_draft < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("max_draft: expected 0 or more, got ", draft.max_draft));
    }
    layout.num_requests = layout.cu_num_draft.span.size();
    layout.width = draft.max_draft;
    PACELINE_RETURN_IF_ERROR(
        CheckCounts(layout.cu_num_draft.span, layout.tokens.span.size(), draft.max_draft));
  } else {
    if (tokens.dim() != 2) return TensorError("draft_tokens", "[B, K]", draft.tokens);
    layout.num_requests = tokens.size(0);
    layout.width = tokens.size(1);
  }
  layout.linked = draft.first_child.defined() || draft.next_sibling.defined();
  layout.tree = layout.linked || draft.parents.defined();
  if (layout.tree && (layout.ragged() || (layout.linked && draft.parents.defined()))) {
    return absl::InvalidArgumentError(
        "parents, first_child, cu_num_draft: expected at most one of them");
  }
  if (layout.linked) {
    PACELINE_ASSIGN_OR_RETURN(layout.first_child,
                              IdsOf("first_child", draft.first_child, tokens.sizes()));
    PACELINE_ASSIGN_OR_RETURN(layout.next_sibling,
                              IdsOf("next_sibling", draft.next_sibling, tokens.sizes()));
  } else if (layout.tree) {
    PACELINE_ASSIGN_OR_RETURN(layout.parents, IdsOf("parents", draft.parents, tokens.sizes()));
  }
  return layout;
}

// --- Results ---

// `tensor` becomes one of this shape and type, in the memory it has if it is one.
void Become(at::IntArrayRef sizes, at::ScalarType type, at::Tensor& tensor) {
  const bool fits = tensor.defined() && tensor.device().is_cpu() && tensor.scalar_type() == type &&
                    tensor.sizes() == sizes && tensor.is_contiguous();
  if (!fits) tensor = at::empty(sizes, at::TensorOptions().dtype(type));
}

// The rows of a result that belong to one request. `outcome` is null for a request that failed.
template <typename Id>
void Write(const VerifyOutcome* outcome, const NumberedTree& tree, int64_t request,
           VerifyResult& result) {
  const auto row = [&](at::Tensor& tensor) {
    const int64_t width = tensor.numel() / tensor.size(0);
    return std::span<Id>(tensor.mutable_data_ptr<Id>() + request * width, width);
  };
  const std::span<Id> tokens = row(result.tokens);
  const std::span<Id> path = row(result.path);
  std::fill(tokens.begin(), tokens.end(), -1);
  std::fill(path.begin(), path.end(), -1);
  row(result.num_accepted)[0] = outcome == nullptr ? -1 : static_cast<Id>(outcome->path.size());
  if (outcome == nullptr) return;
  for (size_t i = 0; i < outcome->path.size(); ++i) {
    tokens[i] = tree.tree.tokens[outcome->path[i]];
    path[i] = tree.NumberOf(outcome->path[i]);
  }
  tokens[outcome->path.size()] = outcome->next_token;
}

// The first error of those that requests, or rows, had.
absl::Status FirstError(std::string_view what, std::span<const absl::Status> statuses) {
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok()) continue;
    return absl::Status(statuses[i].code(),
                        absl::StrCat(std::string(what), " ", i, ": ", statuses[i].message()));
  }
  return absl::OkStatus();
}

// Calls work(verifier, i) for each of `count` requests or rows, as `what` names one, on torch's
// threads.
template <typename Real, typename Work>
absl::Status ForEach(std::string_view what, int64_t count, Workspace& workspace, Work work) {
  std::vector<RequestVerifier<Real>>& verifiers = workspace.Verifiers<Real>();
  std::vector<absl::Status>& statuses = workspace.Statuses(count);
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      statuses[i] = work(verifiers[at::get_thread_num()], i);
    }
  });
  return FirstError(what, statuses);
}

// Rows [B, ., width] as the padded layouts have them, or [num_rows, width] as ragged chains do;
// with `root` a row more than tokens for each request.
absl::Status CheckRows(std::string_view name, const at::Tensor& rows, const Layout& layout,
                       int64_t num_rows, bool root) {
  const at::IntArrayRef sizes = rows.sizes();
  const bool fits = layout.ragged() ? sizes.size() == 2 && sizes[0] == num_rows
                                    : sizes.size() == 3 && sizes[0] == layout.num_requests &&
                                          sizes[0] * sizes[1] == num_rows;
  if (fits) return absl::OkStatus();
  const std::string shape = layout.ragged() ? (root ? "[N + B, .]" : "[N, .]")
                                            : (root ? "[B, 1 + drafted tokens, .]" : "[B, K, .]");
  return TensorError(name, absl::StrCat(shape, " of ", num_rows, " rows"), rows);
}

// Whether the arithmetic of rows of this type is that of double.
bool IsDouble(const at::Tensor& rows) {
  return rows.defined() && rows.scalar_type() == at::kDouble;
}

// Rows of a draft; none where every token was picked.
template <typename Real>
struct DraftArrays {
  Rows<Real> rows;
  Ids ids;
};

template <typename Real>
absl::StatusOr<DraftArrays<Real>> DraftArraysOf(const DraftTensors& draft, const Layout& layout) {
  DraftArrays<Real> arrays;
  if (!draft.probs.defined()) {
    if (draft.ids.defined()) return TensorError("draft_ids", "none without draft", draft.ids);
    return arrays;
  }
  PACELINE_ASSIGN_OR_RETURN(arrays.rows, RowsOf<Real>("draft", draft.probs, false));
  PACELINE_RETURN_IF_ERROR(
      CheckRows("draft", draft.probs, layout, layout.NumDraftsOfAll(), layout.tree));
  if (draft.ids.defined()) {
    PACELINE_ASSIGN_OR_RETURN(arrays.ids, IdsOf("draft_ids", draft.ids, draft.probs.sizes()));
  }
  return arrays;
}

template <typename Real>
absl::Status VerifyAll(const DraftTensors& draft, const TargetTensor& target, const Layout& layout,
                       const Keys& keys, const VerifySettings& settings, Workspace& workspace,
                       VerifyResult& result) {
  PACELINE_ASSIGN_OR_RETURN(const Rows<Real> rows,
                            RowsOf<Real>("target", target.rows, target.logits));
  PACELINE_RETURN_IF_ERROR(
      CheckRows("target", target.rows, layout, layout.NumTargetsOfAll(), /*root=*/true));
  PACELINE_ASSIGN_OR_RETURN(const DraftArrays<Real> drafts, DraftArraysOf<Real>(draft, layout));
  const bool narrow = layout.tokens.tensor.scalar_type() == at::kInt;
  return ForEach<Real>(
      "request", layout.num_requests, workspace, [&](RequestVerifier<Real>& verifier, int64_t i) {
        const RowSpan<Real>& probs = drafts.rows.span;
        const int64_t first = layout.FirstDraft(i);
        const int64_t count = layout.NumDrafts(i);
        const VerifyRequest<Real> request{
            layout.TokensOf(i),
            rows.span.Part(layout.FirstTarget(i), layout.NumTargets(i)),
            target.logits,
            probs.empty() ? probs : probs.Part(first, count),
            drafts.ids.span.empty()
                ? IdSpan()
                : drafts.ids.span.Part(first * probs.width, count * probs.width),
            keys[i],
            &SamplingOf(settings.sampling, i)};
        const auto outcome = verifier.Verify(request, *settings.rule, settings.options);
        const VerifyOutcome* decided = outcome.ok() ? *outcome : nullptr;
        if (narrow) {
          Write<int32_t>(decided, verifier.tree(), i, result);
        } else {
          Write<int64_t>(decided, verifier.tree(), i, result);
        }
        return outcome.status();
      });
}

template <typename Real>
absl::Status WarpAll(const at::Tensor& logits, std::span<const SamplingOptions> sampling,
                     Workspace& workspace, at::Tensor& probs) {
  PACELINE_ASSIGN_OR_RETURN(const Rows<Real> rows, RowsOf<Real>("logits", logits, true));
  Become(logits.sizes(), kTypeOf<Real>, probs);
  const int64_t rows_each = logits.dim() == 3 ? logits.size(1) : 1;
  Real* const to = probs.mutable_data_ptr<Real>();
  return ForEach<Real>(
      "row", rows.span.num_rows, workspace, [&](RequestVerifier<Real>& verifier, int64_t i) {
        std::span<Real> dense(to + i * rows.span.width, static_cast<size_t>(rows.span.width));
        const auto row = verifier.Warp(rows.span[i], SamplingOf(sampling, i / rows_each), {});
        if (!row.ok()) return row.status();
        (*row)->WriteDense(dense);
        return absl::OkStatus();
      });
}

template <typename Real>
absl::Status SampleAll(const TargetTensor& target, const Keys& keys,
                       const std::optional<PerRequest>& draft_index,
                       std::span<const SamplingOptions> sampling, Workspace& workspace,
                       at::Tensor& tokens) {
  PACELINE_ASSIGN_OR_RETURN(const Rows<Real> rows,
                            RowsOf<Real>("rows", target.rows, target.logits));
  Become({rows.span.num_rows}, at::kLong, tokens);
  int64_t* const to = tokens.mutable_data_ptr<int64_t>();
  return ForEach<Real>(
      "request", rows.span.num_rows, workspace,
      [&](RequestVerifier<Real>& verifier, int64_t i) -> absl::Status {
        const SamplingOptions& options = SamplingOf(sampling, i);
        to[i] = -1;
        RequestKey key = keys[i];
        NoiseAddress address;
        if (draft_index) {
          address.purpose = Purpose::kDraft;
          address.offset = static_cast<uint8_t>((*draft_index)[i]);
          key.position += address.offset;
        }
        address.position = key.position;
        PACELINE_ASSIGN_OR_RETURN(const Distribution<Real>* row,
                                  target.logits ? verifier.Warp(rows.span[i], options, key)
                                                : verifier.Check(rows.span[i]));
        to[i] = row->IdAt(DrawIndex(row->probs(), row->ids(), key.stream, address,
                                    options.draw.value_or(DrawMethod::kInverseCdf)));
        return absl::OkStatus();
      });
}

}  // namespace

template <>
std::vector<RequestVerifier<float>>& Workspace::Verifiers() {
  float_.resize(std::max<size_t>(float_.size(), at::get_num_threads()));
  return float_;
}

template <>
std::vector<RequestVerifier<double>>& Workspace::Verifiers() {
  double_.resize(std::max<size_t>(double_.size(), at::get_num_threads()));
  return double_;
}

std::vector<absl::Status>& Workspace::Statuses(size_t count) {
  statuses_.assign(count, absl::OkStatus());
  return statuses_;
}

absl::Status Verify(const DraftTensors& draft, const TargetTensor& target, const KeyTensors& keys,
                    const VerifySettings& settings, Workspace& workspace, VerifyResult& result) {
  if (settings.rule == nullptr) return absl::InvalidArgumentError("rule: expected one, got none");
  PACELINE_RETURN_IF_ERROR(settings.options.Validate());
  PACELINE_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(draft));
  PACELINE_RETURN_IF_ERROR(CheckSampling(settings.sampling, layout.num_requests));
  PACELINE_ASSIGN_OR_RETURN(const Keys each_key, Keys::Of(keys, layout.num_requests));
  const at::ScalarType type = layout.tokens.tensor.scalar_type();
  const int64_t drafted = std::max<int64_t>(layout.most_drafted(), 0);
  Become({layout.num_requests, drafted + 1}, type, result.tokens);
  Become({layout.num_requests}, type, result.num_accepted);
  Become({layout.num_requests, drafted}, type, result.path);
  const auto verify = IsDouble(target.rows) ? VerifyAll<double> : VerifyAll<float>;
  return verify(draft, target, layout, each_key, settings, workspace, result);
}

absl::Status WarpProbs(const at::Tensor& logits, std::span<const SamplingOptions> sampling,
                       Workspace& workspace, at::Tensor& probs) {
  if (!logits.defined() || (logits.dim() != 2 && logits.dim() != 3)) {
    return TensorError("logits", "[B, V] or [B, R, V]", logits);
  }
  PACELINE_RETURN_IF_ERROR(CheckSampling(sampling, logits.size(0)));
  for (const SamplingOptions& options : sampling) {
    if (options.xtc_probability == 0) continue;
    return absl::UnimplementedError(
        "xtc_probability: expected 0, since its coin has an address that rows alone do not tell");
  }
  const auto warp = IsDouble(logits) ? WarpAll<double> : WarpAll<float>;
  return warp(logits, sampling, workspace, probs);
}

absl::Status Sample(const TargetTensor& rows, const KeyTensors& keys, const at::Tensor& draft_index,
                    std::span<const SamplingOptions> sampling, Workspace& workspace,
                    at::Tensor& tokens) {
  if (!rows.rows.defined() || rows.rows.dim() != 2) {
    return TensorError("rows", "[B, V]", rows.rows);
  }
  const int64_t num_requests = rows.rows.size(0);
  PACELINE_RETURN_IF_ERROR(CheckSampling(sampling, num_requests));
  PACELINE_ASSIGN_OR_RETURN(const Keys each_key, Keys::Of(keys, num_requests));
  std::optional<PerRequest> index;
  if (draft_index.defined()) {
    PACELINE_ASSIGN_OR_RETURN(index, PerRequestOf("draft_index", draft_index, num_requests, 255));
  }
  const auto sample = IsDouble(rows.rows) ? SampleAll<double> : SampleAll<float>;
  return sample(rows, each_key, index, sampling, workspace, tokens);
}

}  // namespace paceline
