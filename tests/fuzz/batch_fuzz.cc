// Arrays of one request: whatever they hold, the request is verified or refused with a reason, and
// what is accepted is a path of the tree it drew.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "batch/request_verifier.h"

namespace {

using paceline::IdSpan;
using Ids = std::vector<int64_t>;

constexpr int32_t kVocab = 5;

// Numbers of the input, one after the other; 0 once it is used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  // Mostly ids and links that may be sound, now and then anything.
  int64_t Id() {
    const uint8_t byte = Byte();
    return byte < 250 ? byte % 12 - 2 : (int64_t{Byte()} << 56 | byte);
  }
  Ids Some(int64_t count) {
    Ids ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(Id());
    return ids;
  }
  std::vector<double> Row() {
    using Limits = std::numeric_limits<double>;
    constexpr double kOdd[] = {-Limits::infinity(), Limits::infinity(), Limits::quiet_NaN(),
                               Limits::max(), Limits::lowest()};
    std::vector<double> row;
    for (int32_t i = 0; i < kVocab; ++i) {
      const uint8_t byte = Byte();
      row.push_back(byte < 5 ? kOdd[byte] : byte / 32.0);
    }
    return row;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

IdSpan SpanOf(const Ids& ids) { return {ids.data(), static_cast<int64_t>(ids.size())}; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const uint8_t form = input.Byte() % 3;
  const int64_t count = input.Byte() % 10;
  const auto rules = paceline::Rules();
  const paceline::Rule& rule = rules[input.Byte() % rules.size()];
  const Ids tokens = input.Some(count);
  const Ids first = input.Some(form == 0 ? 0 : count);
  const Ids second = input.Some(form == 2 ? count : 0);

  paceline::SamplingOptions sampling;
  sampling.temperature = input.Byte() / 64.0;
  sampling.top_k = input.Byte() % 7;
  sampling.top_p = (input.Byte() % 16) / 10.0;
  paceline::VerifyRequest<double> request;
  request.drafted.tokens = SpanOf(tokens);
  if (form == 1) request.drafted.parents = SpanOf(first);
  if (form == 2) {
    request.drafted.first_child = SpanOf(first);
    request.drafted.next_sibling = SpanOf(second);
  }
  const uint8_t flags = input.Byte();
  request.logits = flags % 2 == 0;
  request.sampling = &sampling;
  request.key = {{flags, 0}, input.Byte()};
  std::vector<double> target;
  const int64_t num_rows = count + (form == 2 ? 0 : 1);
  for (int64_t i = 0; i < num_rows; ++i) {
    const std::vector<double> row = input.Row();
    target.insert(target.end(), row.begin(), row.end());
  }
  request.target = {target.data(), num_rows, kVocab};
  // Draft rows: even ones, or sparse ones that may be anything.
  const int64_t num_draft = form == 0 ? count : num_rows;
  std::vector<double> draft(num_rows * kVocab, 1.0 / kVocab);
  Ids ids;
  if (flags % 4 >= 2) request.draft = {draft.data(), num_draft, kVocab};
  if (flags % 8 >= 6) {
    ids = input.Some(num_draft * kVocab);
    for (double& prob : draft) {
      const uint8_t byte = input.Byte();
      prob = byte == 0 ? std::numeric_limits<double>::quiet_NaN() : byte / 255.0;
    }
    request.draft_ids = SpanOf(ids);
  }

  static paceline::RequestVerifier<double> verifier;
  const auto outcome = verifier.Verify(request, rule, {});
  if (!outcome.ok()) {
    if (outcome.status().message().empty()) std::abort();
    return 0;
  }
  const paceline::TokenTree& tree = verifier.tree().tree;
  int32_t parent = -1;
  for (const int32_t node : (*outcome)->path) {
    if (node < 0 || node >= tree.size() || tree.parents[node] != parent) std::abort();
    if (verifier.tree().NumberOf(node) < 0 || verifier.tree().NumberOf(node) >= count) std::abort();
    parent = node;
  }
  if ((*outcome)->next_token < 0 || (*outcome)->next_token >= kVocab) std::abort();
  return 0;
}
