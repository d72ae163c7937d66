// Any bytes are a model or an error; the views of a model lie within the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "models/block_format.h"
#include "models/gguf.h"
#include "models/gguf_model.h"

namespace paceline {
namespace {

constexpr int64_t kSmall = 1 << 16;  // Elements of tensors that are worth converting.

void Require(bool holds) {
  if (!holds) std::abort();
}

void RequireWithin(std::span<const uint8_t> part, std::span<const uint8_t> whole) {
  Require(part.data() >= whole.data());
  Require(part.data() + part.size() <= whole.data() + whole.size());
}

void CheckTensor(const TensorView& tensor, std::span<const uint8_t> bytes) {
  RequireWithin(tensor.bytes, bytes);
  Require(!tensor.shape.empty());
  for (const int64_t size : tensor.shape) Require(size > 0);
  const int64_t elements = tensor.num_elements();
  Require(static_cast<int64_t>(tensor.bytes.size()) == BlockBytes(tensor.type, elements));
  if (elements > kSmall) return;
  std::vector<float> values(elements);
  Require(Dequantise(tensor.type, tensor.bytes, values).ok());
}

void CheckEntries(const GgufFile& file, std::span<const uint8_t> bytes) {
  Require(file.keys().size() == file.entries().size());
  for (const auto& [key, entry] : file.entries()) {
    RequireWithin(entry.bytes, bytes);
    const auto* array = std::get_if<GgufArray>(&entry.value);
    if (array == nullptr || array->size == 0) continue;
    if (array->has_integers()) array->Integer(array->size - 1);
    if (array->has_strings()) Require(static_cast<int64_t>(array->strings.size()) == array->size);
  }
}

void CheckTokenizer(const GgufFile& file) {
  const auto spec = GgufTokenizer(file);
  if (!spec.ok()) return;
  Require(spec->kinds.size() == spec->tokens.size());
  for (const auto& id :
       {spec->bos_id, spec->eos_id, spec->eot_id, spec->unknown_id, spec->pad_id}) {
    Require(!id.has_value() || (*id >= 0 && *id < static_cast<int64_t>(spec->tokens.size())));
  }
}

// One line, whatever the names in the file are.
void CheckMessage(const absl::Status& status) {
  Require(status.ok() || status.message().find('\n') == absl::string_view::npos);
}

}  // namespace
}  // namespace paceline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace paceline;  // NOLINT: the entry point must be outside of the namespace.
  const std::span<const uint8_t> bytes(data, size);
  const auto file = GgufFile::Parse(bytes, "fuzz");
  CheckMessage(file.status());
  if (!file.ok()) return 0;
  for (const TensorView& tensor : file->tensors()) CheckTensor(tensor, bytes);
  CheckEntries(*file, bytes);
  CheckTokenizer(*file);
  const auto config = GgufModelConfig(*file);
  CheckMessage(config.status());
  if (!config.ok()) return 0;
  Require(config->Validate().ok());
  CheckMessage(GgufTensors(*file, *config).status());
  return 0;
}
