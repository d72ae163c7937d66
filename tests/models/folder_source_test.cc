// Hugging Face folders: damaged and contradictory files are named, tied heads and indices are
// heeded.
#include "models/folder_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "models/safetensors.h"
#include "tests/support/model_folder.h"
#include "tests/support/status_matchers.h"

namespace paceline::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Safetensors(const json& header, size_t data_bytes) {
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + text + std::string(data_bytes, '\1');
}

absl::StatusOr<std::vector<TensorView>> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "x");
}

json Tensor(const json& shape, const json& range, const char* type = "F32") {
  return {{"dtype", type}, {"shape", shape}, {"data_offsets", range}};
}

TEST(SafetensorsTest, TensorsLieWhereTheHeaderSays) {
  const std::string file = Safetensors({{"__metadata__", {{"format", "pt"}}},
                                        {"b", Tensor({2, 3}, {8, 32})},
                                        {"a", Tensor({4}, {0, 8}, "BF16")}},
                                       32);
  const auto tensors = Parse(file);
  ASSERT_THAT(tensors, IsOk());
  ASSERT_EQ(tensors->size(), 2);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].type, BlockType::kBF16);
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*tensors)[1].bytes.size(), 24);
}

TEST(SafetensorsTest, Br52RangesAreChecked) {
  struct Fault {
    json header;
    const char* part;
  };
  const Fault kFaults[] = {
      {{{"a", Tensor({1000, 1000}, {0, 4})}}, "tensor 'a': data_offsets: expected 4000000 bytes"},
      {{{"a", Tensor({1}, {4, 0})}}, "tensor 'a': data_offsets: expected a range"},
      {{{"a", Tensor({2}, {4, 12})}}, "tensor 'a': data_offsets: expected a range in [0, 8]"},
      {{{"a", Tensor({1}, {0, uint64_t{1} << 63})}}, "tensor 'a'"},
      {{{"a", Tensor({1}, {0, 4})}, {"b", Tensor({1}, {0, 4})}}, "tensor 'b': expected to begin"},
      {{{"a", Tensor({1}, {4, 8})}}, "tensor 'a': expected to begin at byte 0"},
      {{{"a", Tensor({1}, {0, 4})}}, "header: expected tensors for all of 8 bytes"},
      {{{"a", Tensor({1u << 31, 1u << 31}, {0, 8})}}, "tensor 'a': shape"},
      {{{"a", Tensor({-1}, {0, 8})}}, "tensor 'a': shape"},
      {{{"a", Tensor({1, 1, 1, 1, 1}, {0, 4})}}, "tensor 'a': shape"},
      {{{"a", Tensor({1}, {0, 4}, "I64")}}, "tensor 'a': dtype: 'I64'"},
      {{{"a", {{"dtype", "F32"}, {"shape", {2}}}}}, "tensor 'a': data_offsets"},
      {{{"a", 5}}, "tensor 'a'"},
      {json::array(), "header: expected a JSON object"},
  };
  for (const Fault& fault : kFaults) {
    EXPECT_THAT(std::string(Parse(Safetensors(fault.header, 8)).status().message()),
                AllOf(HasSubstr("x: "), HasSubstr(fault.part)))
        << fault.header;
  }
}

TEST(SafetensorsTest, Br52HeadersAreChecked) {
  std::string file = Safetensors({{"a", Tensor({2}, {0, 8})}}, 8);
  for (const uint64_t length : {uint64_t{1} << 40, ~uint64_t{0}, uint64_t{file.size()}}) {
    std::memcpy(file.data(), &length, 8);
    EXPECT_THAT(Parse(file), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header length")));
  }
  EXPECT_THAT(Parse("abc"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("header length")));
  // The same name twice: JSON has room for it.
  const std::string entry = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string header = "{" + entry + "," + entry + "}";
  const uint64_t length = header.size();
  std::string twice(8, '\0');
  std::memcpy(twice.data(), &length, 8);
  EXPECT_THAT(Parse(twice + header + "1234"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a second one")));
}

TEST(FolderSourceTest, Br53HeadsAreTiedOrThere) {
  EXPECT_THAT(OpenModel(DataPath("models/llama-untied-no-head")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'lm_head.weight': expected")));
  const auto tied = OpenModel(DataPath("models/llama-tied-with-head"));
  ASSERT_THAT(tied, IsOk());
  EXPECT_TRUE((*tied)->config().tied_head);
  EXPECT_FALSE((*tied)->Find("output.weight").ok());
  const auto untied = OpenModel(DataPath("models/llama-untied"));
  ASSERT_THAT(untied, IsOk());
  EXPECT_THAT((*untied)->Find("output.weight"), IsOk());
}

// BR-54: GGUF files of one family hold queries and keys in pairs; folders and other families do
// not.
TEST(FolderSourceTest, Br54RowsArePairedInOneFamilyOnly) {
  for (const char* name : {"llama", "qwen2"}) {
    const auto gguf = OpenModel(DataPath(std::string("models/") + name + "/model-f32.gguf"));
    const auto folder = OpenModel(DataPath(std::string("models/") + name));
    EXPECT_EQ((*gguf)->config().rope_interleaved, std::string(name) == "llama");
    EXPECT_FALSE((*folder)->config().rope_interleaved);
    // Stored row 2i is row i, row 2i + 1 is row i + half.
    const TensorView& paired = **(*gguf)->Find("blk.0.attn_q.weight");
    const TensorView& plain = **(*folder)->Find("blk.0.attn_q.weight");
    ASSERT_EQ(paired.shape, plain.shape);
    const int64_t row_bytes = paired.shape[1] * 4;
    const int64_t half = (*gguf)->config().head_dim / 2;
    for (int64_t row = 0; row < 2 * half; ++row) {
      const int64_t from = std::string(name) == "llama" ? row % 2 * half + row / 2 : row;
      EXPECT_EQ(std::memcmp(paired.bytes.data() + row * row_bytes,
                            plain.bytes.data() + from * row_bytes, row_bytes),
                0)
          << name << ", row " << row;
    }
  }
}

TEST(FolderSourceTest, AnyFileOfAFolderMeansTheFolder) {
  const ModelFolder folder("llama");
  for (const char* file : {"", "/config.json", "/model.safetensors", "/"}) {
    EXPECT_THAT(OpenModel(folder.path() + file), IsOk()) << file;
  }
}

struct Fault {
  const char* model;
  std::function<void(const ModelFolder&)> make;
  const char* part;
};

std::function<void(const ModelFolder&)> Config(json patch) {
  return [=](const ModelFolder& folder) { folder.Patch("config.json", patch); };
}

TEST(FolderSourceTest, FaultsAreNamed) {
  const char* const kIndex = "model.safetensors.index.json";
  const Fault kFaults[] = {
      {"llama", [](auto& f) { f.Remove("config.json"); }, "config.json: cannot be opened"},
      {"llama", [](auto& f) { f.Write("config.json", "{"); }, "config.json: expected JSON"},
      {"llama", [](auto& f) { f.Write("config.json", "[]"); },
       "config.json: expected a JSON object"},
      {"llama", [](auto& f) { f.Write("config.json", std::string(4 << 20, ' ')); }, "at most"},
      {"llama", [](auto& f) { f.Remove("tokenizer.json"); }, "tokenizer.json: cannot be opened"},
      {"llama", [](auto& f) { f.Remove("model.safetensors"); }, "expected model.safetensors or"},
      {"llama", [](auto& f) { f.Write("generation_config.json", "7"); }, "generation_config.json"},
      {"llama",
       [](auto& f) {
         f.Patch("generation_config.json", {{"eos_token_id", "x"}});
       },
       "eos_token_id"},
      {"llama",
       [](auto& f) {
         f.Patch("generation_config.json", {{"eos_token_id", {2, -4}}});
       },
       "eos_token_id"},
      {"llama", Config({{"model_type", "bert"}}), "model_type: expected one of llama"},
      {"llama", Config({{"num_hidden_layers", nullptr}}), "num_hidden_layers: expected a number"},
      {"llama", Config({{"num_hidden_layers", 1e30}}), "num_hidden_layers"},
      {"llama", Config({{"num_hidden_layers", 2}}), "'model.layers.2"},
      {"llama", Config({{"num_hidden_layers", 4}}), "'model.layers.3.input_layernorm.weight'"},
      {"llama", Config({{"hidden_size", 65}}), "embed_tokens.weight': expected [320, 65]"},
      {"llama", Config({{"hidden_size", 0}}), "config.json: hidden size"},
      {"llama", Config({{"head_dim", 8}}), "q_proj.weight': expected [32, 64], got [64, 64]"},
      {"llama", Config({{"num_key_value_heads", 3}}), "key-value heads"},
      {"llama", Config({{"hidden_act", "relu"}}), "activation: 'relu'"},
      {"llama", Config({{"quantization_config", {{"bits", 4}}}}), "quantization_config"},
      {"llama", Config({{"attention_bias", true}}), "q_proj.bias"},
      {"llama", Config({{"rms_norm_eps", "x"}}), "rms_norm_eps: expected a number, got 'x'"},
      {"llama", Config({{"vocab_size", 100}}), "embed_tokens.weight"},
      {"llama", Config({{"rope_parameters", {{"rope_type", "yarn"}}}}), "rope_type: 'yarn'"},
      {"llama3-rope", Config({{"rope_parameters", {{"factor", nullptr}}}}),
       "rope_parameters: factor"},
      {"gemma3", Config({{"layer_types", {"full_attention"}}}), "layer_types: expected 3"},
      {"gemma3", Config({{"sliding_window", nullptr}}), "sliding_window"},
      {"gemma3", Config({{"final_logit_softcapping", 30.0}}), "final_logit_softcapping"},
      {"gpt2", Config({{"scale_attn_by_inverse_layer_idx", true}}), "scale_attn_by_inverse"},
      {"llama-sharded", [](auto& f) { f.Remove("model-00002-of-00002.safetensors"); },
       "model-00002-of-00002.safetensors: cannot be opened"},
      {"llama-sharded",
       [=](auto& f) {
         json index = json::parse(f.Read(kIndex));
         index["weight_map"]["model.norm.weight"] = "../model-00001-of-00002.safetensors";
         f.Write(kIndex, index.dump());
       },
       "weight_map: 'model.norm.weight'"},
      {"llama-sharded",
       [=](auto& f) {
         json index = json::parse(f.Read(kIndex));
         index["weight_map"]["model.extra.weight"] = "model-00001-of-00002.safetensors";
         f.Write(kIndex, index.dump());
       },
       "'model.extra.weight': expected one, as the index says"},
      {"llama-sharded",
       [=](auto& f) {
         f.Patch(kIndex, {{"weight_map", nullptr}});
       },
       "embed_tokens.weight"},
  };
  for (const Fault& fault : kFaults) {
    const ModelFolder folder(fault.model);
    fault.make(folder);
    const absl::Status status = OpenModel(folder.path()).status();
    EXPECT_FALSE(status.ok()) << fault.part;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(folder.path()), HasSubstr(fault.part)));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
}

TEST(FolderSourceTest, SpecialsComeFromTheFilesBesideTheTokenizer) {
  const ModelFolder folder("llama");
  folder.Patch("tokenizer_config.json",
               {{"add_bos_token", true},
                {"bos_token", {{"content", "<|bos|>"}}},
                {"chat_template", {{{"name", "default"}, {"template", "named"}}}}});
  auto source = OpenModel(folder.path());
  ASSERT_THAT(source, IsOk());
  EXPECT_TRUE((*source)->tokenizer().add_bos);
  EXPECT_EQ((*source)->tokenizer().bos_id, 1);
  EXPECT_EQ((*source)->tokenizer().chat_template, "named");
  folder.Write("chat_template.jinja", "of a file");
  EXPECT_EQ((*OpenModel(folder.path()))->tokenizer().chat_template, "of a file");
}

}  // namespace
}  // namespace paceline::testing
