// The tensor API as torch operators: torch.ops.paceline.verify_chain, verify_block, verify_tree,
// sample and warp_probs. Meta kernels give shapes and types without computing.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "batch/tensor_api.h"

namespace paceline {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// Names and types as Python shows them. Settings are numbers, or tensors of one a request.
constexpr char kSettings[] =
    "Tensor? temperature=None, Tensor? top_k=None, Tensor? top_p=None, Tensor? min_p=None";
constexpr char kKeys[] = "Tensor seeds, Tensor positions, Tensor? streams=None";

void ThrowUnlessOk(const absl::Status& status) {
  const std::string message(status.message());
  TORCH_CHECK_NOT_IMPLEMENTED(!absl::IsUnimplemented(status), message);
  TORCH_CHECK_VALUE(!absl::IsInvalidArgument(status), message);
  TORCH_CHECK(status.ok(), message);
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowUnlessOk(value.status());
  return *std::move(value);
}

// Lives as long as its thread, so that calls share memory.
Workspace& ThreadWorkspace() {
  thread_local Workspace workspace;
  return workspace;
}

// --- Settings ---

// One number a request, or one for all; undefined where the option is off.
struct Setting {
  at::Tensor values;

  Setting(const char* name, const OptionalTensor& tensor, int64_t num_requests) {
    if (!tensor.has_value() || !tensor->defined()) return;
    TORCH_CHECK_VALUE(tensor->dim() == 0 || (tensor->dim() == 1 && tensor->size(0) == num_requests),
                      name, ": expected one number, or ", num_requests, ", one a request, got ",
                      tensor->sizes());
    values = tensor->to(at::kDouble).contiguous();
  }
  int64_t count() const { return values.defined() && values.dim() == 1 ? values.size(0) : 1; }
  double At(int64_t i, double off) const {
    if (!values.defined()) return off;
    return values.const_data_ptr<double>()[values.dim() == 1 ? i : 0];
  }
};

std::optional<DrawMethod> DrawOf(std::optional<std::string_view> name) {
  if (!name) return std::nullopt;
  if (*name == "inverse-cdf") return DrawMethod::kInverseCdf;
  TORCH_CHECK_VALUE(*name == "gumbel", "draw: expected inverse-cdf or gumbel, got '", *name, "'");
  return DrawMethod::kGumbel;
}

std::vector<SamplingOptions> SamplingOf(const OptionalTensor& temperature,
                                        const OptionalTensor& top_k, const OptionalTensor& top_p,
                                        const OptionalTensor& min_p,
                                        std::optional<std::string_view> draw,
                                        int64_t num_requests) {
  const Setting temperatures("temperature", temperature, num_requests);
  const Setting ks("top_k", top_k, num_requests);
  const Setting ps("top_p", top_p, num_requests);
  const Setting min_ps("min_p", min_p, num_requests);
  const bool one =
      temperatures.count() == 1 && ks.count() == 1 && ps.count() == 1 && min_ps.count() == 1;
  std::vector<SamplingOptions> sampling(one ? 1 : num_requests);
  for (size_t i = 0; i < sampling.size(); ++i) {
    const double k = ks.At(i, 0);
    TORCH_CHECK_VALUE(k >= -1 && k <= INT32_MAX, "top_k: expected a number in [-1, ", INT32_MAX,
                      "], got ", k);
    sampling[i].temperature = temperatures.At(i, 1);
    sampling[i].top_k = static_cast<int32_t>(k);
    sampling[i].top_p = ps.At(i, 1);
    sampling[i].min_p = min_ps.At(i, 0);
    sampling[i].draw = DrawOf(draw);
  }
  return sampling;
}

// Rows that are probabilities were warped already.
void CheckUnwarped(bool logits, const OptionalTensor& temperature, const OptionalTensor& top_k,
                   const OptionalTensor& top_p, const OptionalTensor& min_p) {
  const bool any = temperature || top_k || top_p || min_p;
  TORCH_CHECK_VALUE(logits || !any,
                    "temperature, top_k, top_p, min_p: expected none with logits=False, since "
                    "probabilities are taken as they are");
}

// --- Kernels ---

VerifyResult RunVerify(const DraftTensors& draft, const TargetTensor& target,
                       const KeyTensors& keys, const std::vector<SamplingOptions>& sampling,
                       std::string_view rule) {
  VerifySettings settings;
  settings.rule = ValueOrThrow(FindRule(rule));
  settings.sampling = sampling;
  VerifyResult result;
  ThrowUnlessOk(Verify(draft, target, keys, settings, ThreadWorkspace(), result));
  return result;
}

int64_t MostDrafted(const OptionalTensor& cu_num_draft, std::optional<int64_t> max_draft) {
  TORCH_CHECK_VALUE(
      cu_num_draft.has_value() == max_draft.has_value(),
      "max_draft: expected with cu_num_draft, and only with it: the most tokens that a "
      "request may have drafted");
  TORCH_CHECK_VALUE(max_draft.value_or(0) >= 0, "max_draft: expected 0 or more, got ", *max_draft);
  return max_draft.value_or(0);
}

std::tuple<at::Tensor, at::Tensor> VerifyChain(
    const at::Tensor& draft_tokens, const at::Tensor& target, const OptionalTensor& draft,
    const at::Tensor& seeds, const at::Tensor& positions, const OptionalTensor& streams,
    const OptionalTensor& draft_ids, const OptionalTensor& cu_num_draft,
    std::optional<int64_t> max_draft, const OptionalTensor& temperature,
    const OptionalTensor& top_k, const OptionalTensor& top_p, const OptionalTensor& min_p,
    bool logits, std::string_view rule, std::optional<std::string_view> draw) {
  CheckUnwarped(logits, temperature, top_k, top_p, min_p);
  DraftTensors drafted;
  drafted.tokens = draft_tokens;
  drafted.cu_num_draft = cu_num_draft.value_or(at::Tensor());
  drafted.max_draft = MostDrafted(cu_num_draft, max_draft);
  drafted.probs = draft.value_or(at::Tensor());
  drafted.ids = draft_ids.value_or(at::Tensor());
  const at::Tensor& counted = cu_num_draft ? *cu_num_draft : draft_tokens;
  const int64_t num_requests = counted.dim() == 0 ? 0 : counted.size(0);
  const VerifyResult result =
      RunVerify(drafted, {target, logits}, {seeds, streams.value_or(at::Tensor()), positions},
                SamplingOf(temperature, top_k, top_p, min_p, draw, num_requests), rule);
  return {result.tokens, result.num_accepted};
}

std::tuple<at::Tensor, at::Tensor> VerifyChainMeta(
    const at::Tensor& draft_tokens, const at::Tensor&, const OptionalTensor&, const at::Tensor&,
    const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor& cu_num_draft, std::optional<int64_t> max_draft, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, bool, std::string_view,
    std::optional<std::string_view>) {
  const int64_t dim = cu_num_draft ? 1 : 2;
  TORCH_CHECK_VALUE(draft_tokens.dim() == dim, "draft_tokens: expected ", dim, " dimensions, got ",
                    draft_tokens.dim());
  const c10::SymInt most = MostDrafted(cu_num_draft, max_draft);
  const c10::SymInt num_requests = (cu_num_draft ? *cu_num_draft : draft_tokens).sym_size(0);
  const c10::SymInt width = (cu_num_draft ? most : draft_tokens.sym_size(1)) + 1;
  return {at::empty_symint({num_requests, width}, draft_tokens.options()),
          at::empty_symint({num_requests}, draft_tokens.options())};
}

// The rule `block` by its name; on every device that verify_chain runs on.
std::tuple<at::Tensor, at::Tensor> VerifyBlockChain(
    const at::Tensor& draft_tokens, const at::Tensor& target, const OptionalTensor& draft,
    const at::Tensor& seeds, const at::Tensor& positions, const OptionalTensor& streams,
    const OptionalTensor& draft_ids, const OptionalTensor& cu_num_draft,
    std::optional<int64_t> max_draft, const OptionalTensor& temperature,
    const OptionalTensor& top_k, const OptionalTensor& top_p, const OptionalTensor& min_p,
    bool logits, std::optional<std::string_view> draw) {
  static const auto verify_chain = c10::Dispatcher::singleton()
                                       .findSchemaOrThrow("paceline::verify_chain", "")
                                       .typed<decltype(VerifyChain)>();
  return verify_chain.call(draft_tokens, target, draft, seeds, positions, streams, draft_ids,
                           cu_num_draft, max_draft, temperature, top_k, top_p, min_p, logits,
                           "block", draw);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> VerifyTree(
    const at::Tensor& draft_tokens, const at::Tensor& target, const OptionalTensor& draft,
    const at::Tensor& seeds, const at::Tensor& positions, const OptionalTensor& streams,
    const OptionalTensor& draft_ids, const OptionalTensor& parents,
    const OptionalTensor& first_child, const OptionalTensor& next_sibling,
    const OptionalTensor& temperature, const OptionalTensor& top_k, const OptionalTensor& top_p,
    const OptionalTensor& min_p, bool logits, std::string_view rule,
    std::optional<std::string_view> draw) {
  CheckUnwarped(logits, temperature, top_k, top_p, min_p);
  TORCH_CHECK_VALUE(parents || first_child,
                    "parents: expected parents, or first_child and next_sibling, got none");
  DraftTensors drafted;
  drafted.tokens = draft_tokens;
  drafted.parents = parents.value_or(at::Tensor());
  drafted.first_child = first_child.value_or(at::Tensor());
  drafted.next_sibling = next_sibling.value_or(at::Tensor());
  drafted.probs = draft.value_or(at::Tensor());
  drafted.ids = draft_ids.value_or(at::Tensor());
  const int64_t num_requests = draft_tokens.dim() == 0 ? 0 : draft_tokens.size(0);
  const VerifyResult result =
      RunVerify(drafted, {target, logits}, {seeds, streams.value_or(at::Tensor()), positions},
                SamplingOf(temperature, top_k, top_p, min_p, draw, num_requests), rule);
  return {result.tokens, result.num_accepted, result.path};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> VerifyTreeMeta(
    const at::Tensor& draft_tokens, const at::Tensor&, const OptionalTensor&, const at::Tensor&,
    const at::Tensor&, const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor& first_child, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, bool, std::string_view,
    std::optional<std::string_view>) {
  TORCH_CHECK_VALUE(draft_tokens.dim() == 2, "draft_tokens: expected 2 dimensions, got ",
                    draft_tokens.dim());
  const c10::SymInt num_requests = draft_tokens.sym_size(0);
  const c10::SymInt drafted = draft_tokens.sym_size(1) - (first_child ? 1 : 0);
  return {at::empty_symint({num_requests, drafted + 1}, draft_tokens.options()),
          at::empty_symint({num_requests}, draft_tokens.options()),
          at::empty_symint({num_requests, drafted}, draft_tokens.options())};
}

at::Tensor SampleRows(const at::Tensor& rows, const at::Tensor& seeds, const at::Tensor& positions,
                      const OptionalTensor& streams, const OptionalTensor& draft_index,
                      const OptionalTensor& temperature, const OptionalTensor& top_k,
                      const OptionalTensor& top_p, const OptionalTensor& min_p, bool logits,
                      std::optional<std::string_view> draw) {
  CheckUnwarped(logits, temperature, top_k, top_p, min_p);
  const int64_t num_requests = rows.dim() == 0 ? 0 : rows.size(0);
  const auto sampling = SamplingOf(temperature, top_k, top_p, min_p, draw, num_requests);
  at::Tensor tokens;
  ThrowUnlessOk(Sample({rows, logits}, {seeds, streams.value_or(at::Tensor()), positions},
                       draft_index.value_or(at::Tensor()), sampling, ThreadWorkspace(), tokens));
  return tokens;
}

at::Tensor SampleRowsMeta(const at::Tensor& rows, const at::Tensor&, const at::Tensor&,
                          const OptionalTensor&, const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, bool,
                          std::optional<std::string_view>) {
  TORCH_CHECK_VALUE(rows.dim() == 2, "rows: expected 2 dimensions, got ", rows.dim());
  return at::empty_symint({rows.sym_size(0)}, rows.options().dtype(at::kLong));
}

at::Tensor WarpRows(const at::Tensor& logits, const OptionalTensor& temperature,
                    const OptionalTensor& top_k, const OptionalTensor& top_p,
                    const OptionalTensor& min_p) {
  const int64_t num_requests = logits.dim() == 0 ? 0 : logits.size(0);
  const auto sampling = SamplingOf(temperature, top_k, top_p, min_p, std::nullopt, num_requests);
  at::Tensor probs;
  ThrowUnlessOk(WarpProbs(logits, sampling, ThreadWorkspace(), probs));
  return probs;
}

at::Tensor WarpRowsMeta(const at::Tensor& logits, const OptionalTensor&, const OptionalTensor&,
                        const OptionalTensor&, const OptionalTensor&) {
  const bool wide = logits.scalar_type() == at::kDouble;
  return at::empty_symint(logits.sym_sizes(),
                          logits.options().dtype(wide ? at::kDouble : at::kFloat));
}

// Defines an operator from the parts of its schema.
template <typename... Kernel>
void Define(torch::Library& library, const std::string& schema, Kernel... kernel) {
  library.def(schema.c_str(), kernel...);
}

TORCH_LIBRARY(paceline, library) {
  const std::string chain =
      absl::StrCat("(Tensor draft_tokens, Tensor target, Tensor? draft=None, *, ", kKeys,
                   ", Tensor? draft_ids=None, Tensor? cu_num_draft=None, int? max_draft=None, ",
                   kSettings, ", bool logits=True");
  Define(library, absl::StrCat("verify_chain", chain,
                               ", str rule='standard', str? draw=None) -> (Tensor, Tensor)"));
  Define(library, absl::StrCat("verify_block", chain, ", str? draw=None) -> (Tensor, Tensor)"),
         VerifyBlockChain);
  Define(library,
         absl::StrCat(
             "verify_tree(Tensor draft_tokens, Tensor target, Tensor? draft=None, *, ", kKeys,
             ", Tensor? draft_ids=None, Tensor? parents=None, Tensor? first_child=None, "
             "Tensor? next_sibling=None, ",
             kSettings,
             ", bool logits=True, str rule='walk', str? draw=None) -> (Tensor, Tensor, Tensor)"));
  Define(library, absl::StrCat("sample(Tensor rows, *, ", kKeys, ", Tensor? draft_index=None, ",
                               kSettings, ", bool logits=True, str? draw=None) -> Tensor"));
  Define(library, absl::StrCat("warp_probs(Tensor logits, *, ", kSettings, ") -> Tensor"));
}

TORCH_LIBRARY_IMPL(paceline, CPU, library) {
  library.impl("verify_chain", VerifyChain);
  library.impl("verify_tree", VerifyTree);
  library.impl("sample", SampleRows);
  library.impl("warp_probs", WarpRows);
}

TORCH_LIBRARY_IMPL(paceline, Meta, library) {
  library.impl("verify_chain", VerifyChainMeta);
  library.impl("verify_tree", VerifyTreeMeta);
  library.impl("sample", SampleRowsMeta);
  library.impl("warp_probs", WarpRowsMeta);
}

}  // namespace
}  // namespace paceline
