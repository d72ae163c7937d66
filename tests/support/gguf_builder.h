// Builds the bytes of GGUF files, right and wrong ones.
//
//   GgufBuilder file = TinyLlama();
//   file.Set("llama.block_count", gguf::Uint32(0));
//   file.Tensor("output_norm.weight").offset = uint64_t{1} << 40;
//   const std::string bytes = file.Build();
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::testing {

// Values of metadata entries as they stand in a file, type id first.
namespace gguf {

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

template <typename T>
std::string Typed(uint32_t type, T value) {
  return Raw(type) + Raw(value);
}

inline std::string RawText(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

inline std::string Uint8(uint8_t value) { return Typed(0, value); }
inline std::string Int8(int8_t value) { return Typed(1, value); }
inline std::string Uint16(uint16_t value) { return Typed(2, value); }
inline std::string Int16(int16_t value) { return Typed(3, value); }
inline std::string Uint32(uint32_t value) { return Typed(4, value); }
inline std::string Int32(int32_t value) { return Typed(5, value); }
inline std::string Float32(float value) { return Typed(6, value); }
inline std::string Bool(bool value) { return Typed<uint8_t>(7, value ? 1 : 0); }
inline std::string Text(std::string_view text) { return Raw<uint32_t>(8) + RawText(text); }
inline std::string Uint64(uint64_t value) { return Typed(10, value); }
inline std::string Int64(int64_t value) { return Typed(11, value); }
inline std::string Float64(double value) { return Typed(12, value); }

// The head of an array, for elements that follow or do not.
inline std::string ArrayOf(uint32_t type, uint64_t count) {
  return Raw<uint32_t>(9) + Raw(type) + Raw(count);
}

inline std::string Texts(const std::vector<std::string>& texts) {
  std::string value = ArrayOf(8, texts.size());
  for (const std::string& text : texts) value += RawText(text);
  return value;
}

inline std::string Int32s(const std::vector<int32_t>& numbers) {
  std::string value = ArrayOf(5, numbers.size());
  for (int32_t number : numbers) value += Raw(number);
  return value;
}

}  // namespace gguf

struct GgufBuilder {
  struct TensorInfo {
    std::string name;
    std::vector<uint64_t> dimensions;  // Innermost first, as in the file.
    uint32_t type = 0;                 // F32.
    std::string data;
    std::optional<uint64_t> offset;  // Else behind the tensor before.
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;                 // Of the data; the key is an entry like any other.
  std::optional<uint64_t> num_tensors;     // Else the true number.
  std::optional<uint64_t> num_entries;     // Else the true number.
  std::optional<uint32_t> num_dimensions;  // Of every tensor; else the true number.
  std::vector<std::pair<std::string, std::string>> entries;  // Key; type and value.
  std::vector<TensorInfo> tensors;

  // Replaces the entry `key` or adds it.
  void Set(const std::string& key, std::string value) {
    for (auto& [name, old] : entries) {
      if (name == key) {
        old = std::move(value);
        return;
      }
    }
    entries.emplace_back(key, std::move(value));
  }

  void Remove(const std::string& key) {
    std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
  }

  void RemoveTensor(const std::string& name) {
    std::erase_if(tensors, [&](const TensorInfo& tensor) { return tensor.name == name; });
  }

  TensorInfo& Tensor(std::string_view name) {
    for (TensorInfo& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    throw std::runtime_error("no tensor " + std::string(name));
  }

  // A float32 tensor whose values count up; dimensions outermost first.
  void AddTensor(const std::string& name, std::vector<uint64_t> shape) {
    TensorInfo tensor{name, {shape.rbegin(), shape.rend()}, 0, "", std::nullopt};
    uint64_t elements = 1;
    for (uint64_t size : shape) elements *= size;
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.data += gguf::Raw(static_cast<float>(i) / 64 + static_cast<float>(tensors.size()));
    }
    tensors.push_back(std::move(tensor));
  }

  // Everything before the data, without padding.
  std::string BuildHead() const {
    using gguf::Raw;
    std::string head = magic + Raw(version) + Raw<uint64_t>(num_tensors.value_or(tensors.size())) +
                       Raw<uint64_t>(num_entries.value_or(entries.size()));
    for (const auto& [key, value] : entries) head += gguf::RawText(key) + value;
    uint64_t offset = 0;
    for (const TensorInfo& tensor : tensors) {
      head += gguf::RawText(tensor.name);
      head +=
          Raw<uint32_t>(num_dimensions.value_or(static_cast<uint32_t>(tensor.dimensions.size())));
      for (uint64_t size : tensor.dimensions) head += Raw(size);
      head += Raw(tensor.type) + Raw<uint64_t>(tensor.offset.value_or(offset));
      offset += Padded(tensor.data.size());
    }
    return head;
  }

  // The file. No padding behind the last tensor.
  std::string Build() const {
    std::string file = BuildHead();
    for (const TensorInfo& tensor : tensors) {
      file.resize(Padded(file.size()), '\0');
      file += tensor.data;
    }
    return file;
  }

 private:
  uint64_t Padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
};

// A whole model: 2 layers, hidden 8, feed-forward 12, 2 heads of 4, 1 key-value head, 6 tokens.
inline GgufBuilder TinyLlama() {
  GgufBuilder file;
  file.Set("general.architecture", gguf::Text("llama"));
  file.Set("llama.block_count", gguf::Uint32(2));
  file.Set("llama.context_length", gguf::Uint32(64));
  file.Set("llama.embedding_length", gguf::Uint32(8));
  file.Set("llama.feed_forward_length", gguf::Uint32(12));
  file.Set("llama.attention.head_count", gguf::Uint32(2));
  file.Set("llama.attention.head_count_kv", gguf::Uint32(1));
  file.Set("llama.attention.layer_norm_rms_epsilon", gguf::Float32(1e-6f));
  file.Set("llama.rope.freq_base", gguf::Float32(500.0f));
  file.Set("tokenizer.ggml.model", gguf::Text("gpt2"));
  file.Set("tokenizer.ggml.pre", gguf::Text("smollm"));
  file.Set("tokenizer.ggml.tokens", gguf::Texts({"<s>", "</s>", "a", "b", "ab", "<end>"}));
  file.Set("tokenizer.ggml.token_type", gguf::Int32s({3, 3, 1, 1, 1, 3}));
  file.Set("tokenizer.ggml.merges", gguf::Texts({"a b"}));
  file.Set("tokenizer.ggml.bos_token_id", gguf::Uint32(0));
  file.Set("tokenizer.ggml.eos_token_id", gguf::Uint32(1));
  file.AddTensor("token_embd.weight", {6, 8});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    file.AddTensor(layer + "attn_norm.weight", {8});
    file.AddTensor(layer + "attn_q.weight", {8, 8});
    file.AddTensor(layer + "attn_k.weight", {4, 8});
    file.AddTensor(layer + "attn_v.weight", {4, 8});
    file.AddTensor(layer + "attn_output.weight", {8, 8});
    file.AddTensor(layer + "ffn_norm.weight", {8});
    file.AddTensor(layer + "ffn_gate.weight", {12, 8});
    file.AddTensor(layer + "ffn_up.weight", {12, 8});
    file.AddTensor(layer + "ffn_down.weight", {8, 12});
  }
  file.AddTensor("output_norm.weight", {8});
  return file;
}

}  // namespace paceline::testing
