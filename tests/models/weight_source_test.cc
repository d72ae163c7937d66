#include "models/weight_source.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::TempFolder;
using testing::TinyLlama;
namespace gguf = testing::gguf;

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

using Source = absl::StatusOr<std::unique_ptr<WeightSource>>;

class WeightSourceTest : public ::testing::Test {
 protected:
  Source Open(const GgufBuilder& file) { return OpenModel(folder_.Write("m.gguf", file.Build())); }

  TempFolder folder_;
};

TEST_F(WeightSourceTest, ReadsEveryRecordedModel) {
  for (const std::string type : {"f32", "f16", "bf16", "q4_0", "q4_1", "q8_0"}) {
    SCOPED_TRACE(type);
    const std::string path = testing::DataPath("models/llama/model-" + type + ".gguf");
    const Source model = OpenModel(path);
    ASSERT_THAT(model, IsOk());
    EXPECT_EQ((*model)->tensors().size(), 29);
    EXPECT_EQ((*model)->file_bytes(), static_cast<int64_t>(std::filesystem::file_size(path)));
    EXPECT_EQ((*model)->config().num_layers, 3);
    EXPECT_EQ((*model)->tokenizer().tokens.size(), 320);
    for (const TensorView& tensor : (*model)->tensors()) {
      std::vector<float> values(tensor.num_elements());
      EXPECT_THAT(Dequantise(tensor.type, tensor.bytes, values), IsOk()) << tensor.name;
    }
  }
}

TEST_F(WeightSourceTest, ReadsTheConfiguration) {
  const Source model = OpenModel(testing::DataPath("models/llama/model-q4_0.gguf"));
  ASSERT_THAT(model, IsOk());
  const ModelConfig& config = (*model)->config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.feed_forward_size, 160);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.context_length, 256);
  EXPECT_EQ(config.vocab_size, 320);
  EXPECT_EQ(config.norm_epsilon, 1e-6f);
  EXPECT_EQ(config.rotaries[0].base, 10000.0f);
  EXPECT_TRUE(config.rope_interleaved);
}

TEST_F(WeightSourceTest, ReadsTheTokenizer) {
  const Source model = OpenModel(testing::DataPath("models/llama/model-f32.gguf"));
  ASSERT_THAT(model, IsOk());
  const TokenizerSpec& spec = (*model)->tokenizer();
  EXPECT_EQ(spec.model, "gpt2");
  EXPECT_EQ(spec.pre, "llama-bpe");
  EXPECT_EQ(spec.tokens[1], "<|bos|>");
  EXPECT_EQ(spec.kinds.size(), 320);
  EXPECT_EQ(spec.kinds[1], TokenizerSpec::TokenKind::kControl);
  EXPECT_EQ(spec.merges.size(), 57);
  EXPECT_EQ(spec.bos_id, 1);
  EXPECT_EQ(spec.eos_id, 2);
  EXPECT_EQ(spec.eot_id, 4);
  EXPECT_EQ(spec.pad_id, 2);
  EXPECT_EQ(spec.unknown_id, std::nullopt);
  EXPECT_FALSE(spec.add_bos);
  EXPECT_TRUE(spec.ignore_merges);
  EXPECT_THAT(spec.chat_template, StartsWith("{% for message in messages %}"));
}

TEST_F(WeightSourceTest, FindsTensorsByName) {
  const Source model = Open(TinyLlama());
  ASSERT_THAT(model, IsOk());
  const auto tensor = (*model)->Find("blk.1.ffn_down.weight");
  ASSERT_THAT(tensor, IsOk());
  EXPECT_THAT((*tensor)->shape, ElementsAre(8, 12));
  EXPECT_THAT((*model)->Find("blk.2.ffn_down.weight"),
              StatusIs(kNotFound, HasSubstr("tensor 'blk.2.ffn_down.weight'")));
}

TEST_F(WeightSourceTest, OptionalKeysHaveTheirDefaults) {
  GgufBuilder file = TinyLlama();
  for (const std::string key : {"llama.attention.head_count_kv", "llama.rope.freq_base",
                                "tokenizer.ggml.token_type", "tokenizer.ggml.pre"}) {
    file.Remove(key);
  }
  for (const std::string name : {"blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                 "blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
    file.RemoveTensor(name);
    file.AddTensor(name, {8, 8});
  }
  const Source model = Open(file);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ((*model)->config().num_kv_heads, 2);
  EXPECT_EQ((*model)->config().head_dim, 4);
  EXPECT_EQ((*model)->config().rotaries[0].base, 10000.0f);
  EXPECT_EQ((*model)->tokenizer().pre, "default");
  EXPECT_EQ((*model)->tokenizer().kinds.size(), 6);
}

TEST_F(WeightSourceTest, PatternsOfLlama3ImplyTheBeginToken) {
  GgufBuilder file = TinyLlama();
  EXPECT_FALSE((*Open(file))->tokenizer().add_bos);
  EXPECT_FALSE((*Open(file))->tokenizer().ignore_merges);
  file.Set("tokenizer.ggml.pre", gguf::Text("llama-bpe"));
  EXPECT_TRUE((*Open(file))->tokenizer().add_bos);
  EXPECT_TRUE((*Open(file))->tokenizer().ignore_merges);
  file.Set("tokenizer.ggml.add_bos_token", gguf::Bool(false));
  EXPECT_FALSE((*Open(file))->tokenizer().add_bos);
}

TEST_F(WeightSourceTest, OutputMatrixAndPaddedEmbeddingAreAllowed) {
  GgufBuilder file = TinyLlama();
  file.RemoveTensor("token_embd.weight");
  file.AddTensor("token_embd.weight", {8, 8});
  file.AddTensor("output.weight", {8, 8});
  const Source model = Open(file);
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ((*model)->config().vocab_size, 8);
  EXPECT_EQ((*model)->tokenizer().tokens.size(), 6);
}

TEST_F(WeightSourceTest, RefusesWhatIsNoModelFile) {
  EXPECT_THAT(OpenModel(folder_.Path("none.gguf")),
              StatusIs(kNotFound, HasSubstr(folder_.Path("none.gguf"))));
  EXPECT_THAT(OpenModel(folder_.Path("")), StatusIs(kNotFound, HasSubstr("config.json")));
  EXPECT_THAT(OpenModel("/dev/zero"), StatusIs(kInvalidArgument, HasSubstr("regular file")));
  EXPECT_THAT(OpenModel(folder_.Write("empty", "")),
              StatusIs(kDataLoss, HasSubstr("empty: expected a model, got an empty file")));
  ASSERT_EQ(mkfifo(folder_.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(OpenModel(folder_.Path("pipe")),
              StatusIs(kInvalidArgument, HasSubstr("pipe: expected a regular file")));
  EXPECT_THAT(OpenModel(folder_.Write("text", "hello, world")),
              StatusIs(kDataLoss, HasSubstr("text: magic: expected GGUF")));
}

struct Fault {
  std::string what;
  std::function<void(GgufBuilder&)> make;
  absl::StatusCode code;
  std::string part;
};

std::function<void(GgufBuilder&)> Entry(std::string key, std::string value) {
  return [=](GgufBuilder& file) { file.Set(key, value); };
}

std::function<void(GgufBuilder&)> Without(std::string key) {
  return [=](GgufBuilder& file) { file.Remove(key); };
}

std::function<void(GgufBuilder&)> Shape(std::string name, std::vector<uint64_t> shape) {
  return [=](GgufBuilder& file) {
    file.RemoveTensor(name);
    file.AddTensor(name, shape);
  };
}

std::function<void(GgufBuilder&)> Windows(const std::vector<int32_t>& pattern) {
  return [=](GgufBuilder& file) {
    file.Set("llama.attention.sliding_window", gguf::Uint32(8));
    file.Set("llama.attention.sliding_window_pattern", gguf::Int32s(pattern));
  };
}

class FaultyModelTest : public WeightSourceTest {
 protected:
  void ExpectRefused(const std::vector<Fault>& faults) {
    for (const Fault& fault : faults) {
      SCOPED_TRACE(fault.what);
      GgufBuilder file = TinyLlama();
      fault.make(file);
      EXPECT_THAT(Open(file), StatusIs(fault.code, AllOf(StartsWith(folder_.Path("m.gguf: ")),
                                                         HasSubstr(fault.part))));
    }
  }
};

TEST_F(FaultyModelTest, RefusesMissingAndMistypedKeys) {
  for (const std::string key :
       {"general.architecture", "llama.block_count", "llama.context_length",
        "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model",
        "tokenizer.ggml.tokens"}) {
    const std::string part = "key '" + key + "': expected a";
    ExpectRefused({{"without " + key, Without(key), kDataLoss, part},
                   {"other type of " + key, Entry(key, gguf::Bool(true)), kDataLoss, part}});
  }
  for (const std::string key :
       {"llama.attention.head_count_kv", "llama.attention.key_length", "llama.rope.freq_base",
        "llama.expert_count", "tokenizer.ggml.token_type", "tokenizer.ggml.merges",
        "tokenizer.ggml.eos_token_id", "tokenizer.chat_template"}) {
    ExpectRefused({{"type of " + key, Entry(key, gguf::Bool(true)), kDataLoss, "key '" + key}});
  }
}

TEST_F(FaultyModelTest, RefusesSizesOutOfBounds) {
  using gguf::Float32;
  using gguf::Uint32;
  const std::string epsilon = "llama.attention.layer_norm_rms_epsilon";
  ExpectRefused({
      {"no layers", Entry("llama.block_count", Uint32(0)), kDataLoss, "number of layers"},
      {"10^9 layers", Entry("llama.block_count", Uint32(1000000000)), kDataLoss, "layers"},
      {"2^32 - 1 layers", Entry("llama.block_count", Uint32(~0u)), kDataLoss, "block_count"},
      {"-1 layers", Entry("llama.block_count", gguf::Int32(-1)), kDataLoss, "block_count"},
      {"2^64 - 1", Entry("llama.embedding_length", gguf::Uint64(~uint64_t{0})), kDataLoss,
       "key 'llama.embedding_length': expected a 31-bit number"},
      {"hidden 0", Entry("llama.embedding_length", Uint32(0)), kDataLoss, "hidden size"},
      {"inner 2^30", Entry("llama.feed_forward_length", Uint32(1 << 30)), kDataLoss, "size"},
      {"no heads", Entry("llama.attention.head_count", Uint32(0)), kDataLoss, "heads"},
      {"2^30 heads", Entry("llama.attention.head_count", Uint32(1 << 30)), kDataLoss, "heads"},
      {"no kv heads", Entry("llama.attention.head_count_kv", Uint32(0)), kDataLoss, "key-value"},
      {"4 kv heads", Entry("llama.attention.head_count_kv", Uint32(4)), kDataLoss, "key-value"},
      {"3 heads, 2 kv heads",
       [](auto& file) {
         file.Set("llama.attention.head_count", Uint32(3));
         file.Set("llama.attention.head_count_kv", Uint32(2));
       },
       kDataLoss, "number of key-value heads: expected a divisor of 3, got 2"},
      {"odd head", Entry("llama.attention.key_length", Uint32(5)), kDataLoss,
       "head size: expected an even number, got 5"},
      {"no context", Entry("llama.context_length", Uint32(0)), kDataLoss, "context length"},
      {"epsilon 0", Entry(epsilon, Float32(0)), kDataLoss, "epsilon"},
      {"epsilon nan", Entry(epsilon, Float32(NAN)), kDataLoss, "epsilon"},
      {"base 0", Entry("llama.rope.freq_base", Float32(0)), kDataLoss, "rotary base"},
      {"base 1e300", Entry("llama.rope.freq_base", gguf::Float64(1e300)), kDataLoss, "rotary base"},
  });
}

TEST_F(FaultyModelTest, RefusesWhatItWouldComputeWrongly) {
  using gguf::Float32;
  using gguf::Uint32;
  const std::vector<Fault> faults = {
      {"family", Entry("general.architecture", gguf::Text("mamba")), kUnimplemented,
       "architecture: expected one of llama, qwen2, qwen3, gemma3, gpt2, got 'mamba'"},
      {"soft cap", Entry("llama.final_logit_softcapping", Float32(30)), kUnimplemented,
       "final_logit_softcapping"},
      {"both ways", Entry("llama.attention.causal", gguf::Bool(false)), kUnimplemented, "causal"},
      {"experts", Entry("llama.expert_count", Uint32(8)), kUnimplemented, "llama.expert_count"},
      {"scaling", Entry("llama.rope.scaling.type", gguf::Text("yarn")), kUnimplemented, "scaling"},
      {"factor", Entry("llama.rope.scaling.factor", Float32(-2)), kDataLoss, "factor"},
      {"attention factor", Entry("llama.rope.scaling.attn_factor", Float32(2)), kUnimplemented,
       "attn_factor"},
      {"frequencies", Shape("rope_freqs.weight", {3}), kDataLoss,
       "tensor 'rope_freqs.weight': expected a factor for each of 2 pairs of a head, got 3"},
      {"frequencies of 0", Shape("rope_freqs.weight", {2, 1}), kDataLoss, "rope_freqs.weight"},
      {"odd pattern", Windows({1}), kDataLoss, "sliding_window_pattern': expected an entry for each"},
      {"part of a head", Entry("llama.rope.dimension_count", Uint32(2)), kUnimplemented, "rope"},
      {"values", Entry("llama.attention.value_length", Uint32(8)), kUnimplemented, "value_length"},
      {"bias", Shape("blk.1.attn_q.bias", {8}), kUnimplemented, "tensor 'blk.1.attn_q.bias'"},
      {"layers left over", Entry("llama.block_count", Uint32(1)), kUnimplemented,
       "tensor 'blk.1.attn_norm.weight': expected none in llama with 1 layers"},
  };
  ExpectRefused(faults);
}

TEST_F(FaultyModelTest, FeaturesThatAreOffAreAllowed) {
  GgufBuilder file = TinyLlama();
  file.Set("llama.attention.sliding_window", gguf::Uint32(0));
  file.Set("llama.expert_count", gguf::Uint32(0));
  file.Set("llama.rope.scaling.type", gguf::Text("none"));
  file.Set("llama.rope.scaling.factor", gguf::Float32(2));
  file.Set("llama.rope.dimension_count", gguf::Uint32(4));
  EXPECT_THAT(Open(file), IsOk());
}

TEST_F(WeightSourceTest, ReadsScalingOfTheRotation) {
  GgufBuilder file = TinyLlama();
  const auto frequencies = [&] {
    const Source model = Open(file);
    EXPECT_THAT(model, IsOk());
    return (*model)->config().rotaries[0].frequencies;
  };
  const std::vector<double> plain = frequencies();
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[1], 1 / std::sqrt(500.0), 1e-12);
  file.Set("llama.rope.scale_linear", gguf::Float32(4));
  EXPECT_THAT(frequencies(), ElementsAre(plain[0] / 4, plain[1] / 4));
  file.Set("llama.rope.scaling.type", gguf::Text("linear"));
  file.Set("llama.rope.scaling.factor", gguf::Float32(2));
  EXPECT_THAT(frequencies(), ElementsAre(plain[0] / 2, plain[1] / 2));
  file.Set("llama.rope.scaling.type", gguf::Text("none"));
  EXPECT_EQ(frequencies(), plain);
  file.AddTensor("rope_freqs.weight", {2});  // n and n + 1/64 for the n-th tensor
  const auto n = static_cast<double>(file.tensors.size() - 1);
  EXPECT_THAT(frequencies(), ElementsAre(plain[0] / n, plain[1] / (n + 1.0 / 64)));
}

TEST_F(WeightSourceTest, ReadsWhichLayersSlide) {
  const auto windows = [](const Source& model) {
    EXPECT_THAT(model, IsOk());
    std::vector<int32_t> list;
    for (const LayerConfig& layer : (*model)->config().layers) list.push_back(layer.window);
    return list;
  };
  GgufBuilder file = TinyLlama();
  EXPECT_THAT(windows(Open(file)), ElementsAre(0, 0));
  file.Set("llama.attention.sliding_window", gguf::Uint32(8));
  EXPECT_THAT(windows(Open(file)), ElementsAre(8, 8));
  file.Set("llama.attention.sliding_window_pattern", gguf::Uint32(2));
  EXPECT_THAT(windows(Open(file)), ElementsAre(8, 0));
  Windows({0, 1})(file);
  EXPECT_THAT(windows(Open(file)), ElementsAre(0, 8));
  const auto tiny = [&](const std::string& name) {
    return windows(OpenModel(testing::DataPath("models/" + name)));
  };
  EXPECT_THAT(tiny("mistral/model-f32.gguf"), ElementsAre(8, 8, 8));
  EXPECT_THAT(tiny("gemma3/model-f32.gguf"), ElementsAre(8, 0, 8));
  EXPECT_THAT(tiny("gemma3/model-f32-nopattern.gguf"), ElementsAre(8, 8, 8));
}

TEST_F(FaultyModelTest, RefusesTensorsThatDoNotFit) {
  const auto drop = [](std::string name) {
    return [=](GgufBuilder& file) { file.RemoveTensor(name); };
  };
  ExpectRefused({
      {"rows", Shape("blk.1.attn_q.weight", {8, 4}), kDataLoss,
       "m.gguf: tensor 'blk.1.attn_q.weight': expected [8, 8], got [8, 4]"},
      {"turned", Shape("blk.0.ffn_up.weight", {8, 12}), kDataLoss,
       "tensor 'blk.0.ffn_up.weight': expected [12, 8], got [8, 12]"},
      {"vector", Shape("output_norm.weight", {8, 1}), kDataLoss,
       "tensor 'output_norm.weight': expected [8], got [8, 1]"},
      {"head", Shape("output.weight", {5, 8}), kDataLoss,
       "tensor 'output.weight': expected [6, 8], got [5, 8]"},
      {"missing", drop("blk.1.ffn_down.weight"), kDataLoss,
       "tensor 'blk.1.ffn_down.weight': expected [8, 12], got none"},
      {"no embedding", drop("token_embd.weight"), kDataLoss, "tensor 'token_embd.weight'"},
      {"embedding", Shape("token_embd.weight", {48}), kDataLoss, "tensor 'token_embd.weight'"},
      {"a layer more", Entry("llama.block_count", gguf::Uint32(3)), kDataLoss,
       "tensor 'blk.2.attn_norm.weight': expected [8], got none"},
      {"heads", Entry("llama.attention.head_count_kv", gguf::Uint32(2)), kDataLoss,
       "tensor 'blk.0.attn_k.weight': expected [8, 8], got [4, 8]"},
  });
}

TEST_F(FaultyModelTest, RefusesVocabulariesThatContradictThemselves) {
  const std::string types = "tokenizer.ggml.token_type";
  std::vector<Fault> faults = {
      {"short", Entry(types, gguf::Int32s({3, 3, 1})), kDataLoss,
       "key 'tokenizer.ggml.token_type': expected 6 integers, one a token, got 3"},
      {"texts", Entry(types, gguf::Texts({"", "", "", "", "", ""})), kDataLoss, types},
      {"kind 9", Entry(types, gguf::Int32s({3, 3, 1, 1, 9, 1})), kDataLoss, "got 9"},
      {"kind -1", Entry(types, gguf::Int32s({3, 3, 1, 1, -1, 1})), kDataLoss, "got -1"},
      {"tokens", Entry("tokenizer.ggml.tokens", gguf::Int32s({1})), kDataLoss,
       "key 'tokenizer.ggml.tokens': expected strings"},
      {"merges", Entry("tokenizer.ggml.merges", gguf::Int32s({1})), kDataLoss,
       "key 'tokenizer.ggml.merges': expected strings"},
      {"tokens without rows", Shape("token_embd.weight", {5, 8}), kDataLoss,
       "embedding: expected a row for each of 6 tokens, got 5"},
  };
  for (const std::string name : {"bos", "eos", "eot", "unknown", "padding"}) {
    const std::string key = "tokenizer.ggml." + name + "_token_id";
    const std::string part = "key '" + key + "': expected an id in [0, 6), got ";
    faults.push_back({name, Entry(key, gguf::Uint32(6)), kDataLoss, part + "6"});
    faults.push_back({name, Entry(key, gguf::Int32(-1)), kDataLoss, part + "-1"});
    faults.push_back({name, Entry(key, gguf::Uint32(~0u)), kDataLoss, part + "4294967295"});
  }
  ExpectRefused(faults);
}

TEST(ModelConfigTest, NamesTheFieldThatIsWrong) {
  ModelConfig config;
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("number of layers: expected "
                                                                      "a number in [1, 4096]")));
  config = {.architecture = "llama", .num_layers = 2, .hidden_size = 8, .feed_forward_size = 12,
            .num_heads = 2, .num_kv_heads = 1, .head_dim = 4, .context_length = 64,
            .vocab_size = 6, .rotaries = {}, .layers = {}};
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("settings of layers")));
  config.layers.resize(2);
  EXPECT_THAT(config.Validate(), IsOk());
  config.layers[1].rotary = 1;
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("rotary of a layer")));
  config.rotaries = {PlainRotary(10000.0f, 4), PlainRotary(500.0f, 6)};
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("rotary frequencies")));
  config.rotaries[1] = ScaledLinearly(PlainRotary(500.0f, 4), 0);
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("rotary frequency")));
  config.rotaries[1] = PlainRotary(500.0f, 4);
  EXPECT_THAT(config.Validate(), IsOk());
  config.vocab_size = 0;
  EXPECT_THAT(config.Validate(), StatusIs(kInvalidArgument, HasSubstr("vocabulary size")));
}

}  // namespace
}  // namespace paceline
