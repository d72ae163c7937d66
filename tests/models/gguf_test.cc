#include "models/gguf.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gguf_builder.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::TinyLlama;
namespace gguf = testing::gguf;

constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// The bytes in a block of exactly their size, so that a sanitizer sees reads behind it.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes)
      : bytes_(std::make_unique<uint8_t[]>(bytes.size())), size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.get());
  }
  absl::StatusOr<GgufFile> Parse() const {
    return GgufFile::Parse({bytes_.get(), size_}, "x.gguf");
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_;
};

TEST(GgufTest, ReadsEveryTypeOfValue) {
  GgufBuilder builder;
  builder.Set("u8", gguf::Uint8(200));
  builder.Set("i8", gguf::Int8(-100));
  builder.Set("u16", gguf::Uint16(60000));
  builder.Set("i16", gguf::Int16(-30000));
  builder.Set("u32", gguf::Uint32(4000000000));
  builder.Set("i32", gguf::Int32(-2000000000));
  builder.Set("u64", gguf::Uint64(uint64_t{1} << 62));
  builder.Set("beyond int64", gguf::Uint64(~uint64_t{0}));
  builder.Set("i64", gguf::Int64(-(int64_t{1} << 62)));
  builder.Set("f32", gguf::Float32(0.5f));
  builder.Set("f64", gguf::Float64(1e300));
  builder.Set("yes", gguf::Bool(true));
  builder.Set("text", gguf::Text(std::string("a\0b", 3)));
  const Bytes bytes(builder.Build());
  const auto file = bytes.Parse();
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(file->Integer("u8"), IsOkAndHolds(200));
  EXPECT_THAT(file->Integer("i8"), IsOkAndHolds(-100));
  EXPECT_THAT(file->Integer("u16"), IsOkAndHolds(60000));
  EXPECT_THAT(file->Integer("i16"), IsOkAndHolds(-30000));
  EXPECT_THAT(file->Integer("u32"), IsOkAndHolds(4000000000));
  EXPECT_THAT(file->Integer("i32"), IsOkAndHolds(-2000000000));
  EXPECT_THAT(file->Integer("u64"), IsOkAndHolds(int64_t{1} << 62));
  EXPECT_THAT(file->Integer("beyond int64"), IsOkAndHolds(std::numeric_limits<int64_t>::max()));
  EXPECT_THAT(file->Integer("i64"), IsOkAndHolds(-(int64_t{1} << 62)));
  EXPECT_THAT(file->Number("f32"), IsOkAndHolds(0.5));
  EXPECT_THAT(file->Number("f64"), IsOkAndHolds(1e300));
  EXPECT_THAT(file->Bool("yes", false), IsOkAndHolds(true));
  EXPECT_THAT(file->String("text"), IsOkAndHolds(std::string("a\0b", 3)));
}

TEST(GgufTest, ReadsArrays) {
  GgufBuilder builder;
  builder.Set("texts", gguf::Texts({"a", "", "ccc"}));
  builder.Set("numbers", gguf::Int32s({7, -8}));
  builder.Set("none", gguf::Texts({}));
  builder.Set("reals", gguf::ArrayOf(12, 1) + gguf::Raw(2.0));
  const Bytes bytes(builder.Build());
  const auto file = bytes.Parse();
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT((*file->Array("texts"))->strings, ElementsAre("a", "", "ccc"));
  const GgufArray& numbers = **file->Array("numbers");
  ASSERT_EQ(numbers.size, 2);
  EXPECT_TRUE(numbers.has_integers());
  EXPECT_EQ(numbers.Integer(0), 7);
  EXPECT_EQ(numbers.Integer(1), -8);
  EXPECT_EQ((*file->Array("none"))->size, 0);
  EXPECT_FALSE((*file->Array("reals"))->has_integers());
}

TEST(GgufTest, TypedAccessNamesMissingAndOtherwiseTypedKeys) {
  GgufBuilder builder;
  builder.Set("n", gguf::Uint32(1));
  const Bytes bytes(builder.Build());
  const auto file = bytes.Parse();
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(
      file->String("n"),
      StatusIs(kDataLoss, "x.gguf: key 'n': expected a string, got a value of another type"));
  EXPECT_THAT(file->Number("n"), StatusIs(kDataLoss, HasSubstr("key 'n': expected a float")));
  EXPECT_THAT(file->Bool("n", true), StatusIs(kDataLoss, HasSubstr("key 'n'")));
  EXPECT_THAT(file->Array("n"), StatusIs(kDataLoss, HasSubstr("key 'n': expected an array")));
  EXPECT_THAT(file->Integer("m"),
              StatusIs(kDataLoss, "x.gguf: key 'm': expected an integer, got none"));
  EXPECT_THAT(file->Array("m"), StatusIs(kDataLoss, HasSubstr("key 'm'")));
  EXPECT_THAT(file->Integer("m", 5), IsOkAndHolds(5));
  EXPECT_THAT(file->Number("m", 0.5), IsOkAndHolds(0.5));
  EXPECT_THAT(file->String("m", "x"), IsOkAndHolds("x"));
}

TEST(GgufTest, TensorsAreOutermostFirstAndHoldTheirBytes) {
  const GgufBuilder builder = TinyLlama();
  const Bytes bytes(builder.Build());
  const auto file = bytes.Parse();
  ASSERT_THAT(file, IsOk());
  ASSERT_EQ(file->tensors().size(), builder.tensors.size());
  EXPECT_THAT(file->tensors()[0].shape, ElementsAre(6, 8));
  EXPECT_EQ(file->tensors()[0].num_elements(), 48);
  for (size_t i = 0; i < builder.tensors.size(); ++i) {
    const TensorView& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, builder.tensors[i].name);
    EXPECT_EQ(std::string(tensor.bytes.begin(), tensor.bytes.end()), builder.tensors[i].data);
  }
}

TEST(GgufTest, Version2AndEveryAlignmentRead) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufBuilder builder = TinyLlama();
    builder.version = 2;
    builder.alignment = alignment;
    builder.Set("general.alignment", gguf::Uint32(alignment));
    const Bytes bytes(builder.Build());
    const auto file = bytes.Parse();
    ASSERT_THAT(file, IsOk());
    EXPECT_EQ(file->version(), 2u);
    EXPECT_EQ(file->alignment(), alignment);
    const TensorView& last = file->tensors().back();
    EXPECT_EQ(std::string(last.bytes.begin(), last.bytes.end()), builder.tensors.back().data);
  }
}

TEST(GgufTest, EntriesKeepTheirOrderAndBytes) {
  const GgufBuilder builder = TinyLlama();
  const Bytes bytes(builder.Build());
  const auto file = bytes.Parse();
  ASSERT_THAT(file, IsOk());
  ASSERT_EQ(file->keys().size(), builder.entries.size());
  for (size_t i = 0; i < builder.entries.size(); ++i) {
    const auto& [key, value] = builder.entries[i];
    EXPECT_EQ(file->keys()[i], key);
    const auto entry = file->entries().at(key).bytes;
    EXPECT_EQ(std::string(entry.begin(), entry.end()), gguf::RawText(key) + value);
  }
}

// One wrong thing in a file that is right otherwise.
struct Fault {
  std::string what;
  std::function<void(GgufBuilder&)> make;
  absl::StatusCode code;
  std::string part;  // Of the message.
};

constexpr uint64_t kHuge = ~uint64_t{0};
const std::string kNorm = "output_norm.weight";      // The last tensor.
const std::string kEmbedding = "token_embd.weight";  // The first.

void ExpectRefused(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.what);
    GgufBuilder builder = TinyLlama();
    fault.make(builder);
    EXPECT_THAT(Bytes(builder.Build()).Parse(),
                StatusIs(fault.code, AllOf(StartsWith("x.gguf: "), HasSubstr(fault.part))));
  }
}

std::function<void(GgufBuilder&)> Entry(std::string key, std::string value) {
  return [=](GgufBuilder& file) { file.Set(key, value); };
}

std::function<void(GgufBuilder&)> Offset(std::string name, uint64_t offset) {
  return [=](GgufBuilder& file) { file.Tensor(name).offset = offset; };
}

std::function<void(GgufBuilder&)> Dimensions(std::vector<uint64_t> dimensions) {
  return [=](GgufBuilder& file) { file.Tensor(kNorm).dimensions = dimensions; };
}

std::function<void(GgufBuilder&)> Type(uint32_t type) {
  return [=](GgufBuilder& file) { file.Tensor(kNorm).type = type; };
}

TEST(GgufTest, RefusesWrongHeaders) {
  ExpectRefused({
      {"magic", [](auto& file) { file.magic = "GGML"; }, kDataLoss, "magic: expected GGUF"},
      {"swapped magic", [](auto& file) { file.magic = "FUGG"; }, kUnimplemented, "version"},
      {"version 0", [](auto& file) { file.version = 0; }, kUnimplemented, "got 0"},
      {"version 1", [](auto& file) { file.version = 1; }, kUnimplemented, "got 1"},
      {"version 99", [](auto& file) { file.version = 99; }, kUnimplemented, "got 99"},
      {"big endian", [](auto& file) { file.version = 3 << 24; }, kUnimplemented, "little endian"},
      {"many tensors", [](auto& f) { f.num_tensors = kHuge; }, kDataLoss, "tensor count"},
      {"too many tensors", [](auto& f) { f.num_tensors = 65537; }, kDataLoss, "tensor count"},
      {"one tensor more", [](auto& f) { f.num_tensors = 21; }, kDataLoss, "tensor "},
      {"many keys", [](auto& f) { f.num_entries = kHuge; }, kDataLoss, "metadata count"},
      {"too many keys", [](auto& f) { f.num_entries = 65537; }, kDataLoss, "metadata count"},
      {"more keys", [](auto& file) { file.num_entries = 60000; }, kDataLoss, "metadata entry"},
  });
}

TEST(GgufTest, RefusesWrongMetadata) {
  using gguf::ArrayOf;
  using gguf::Raw;
  const std::string text_head = Raw<uint32_t>(8);
  ExpectRefused({
      {"huge text", Entry("k", text_head + Raw(kHuge)), kDataLoss, "key 'k'"},
      {"long text", Entry("k", text_head + Raw(uint64_t{1} << 40)), kDataLoss, "key 'k'"},
      {"value type 13", Entry("k", Raw<uint32_t>(13)), kDataLoss, "key 'k'"},
      {"value type 2^32 - 1", Entry("k", Raw(~uint32_t{0})), kDataLoss, "key 'k'"},
      {"huge texts", Entry("k", ArrayOf(8, kHuge)), kDataLoss, "key 'k'"},
      {"2^61 texts", Entry("k", ArrayOf(8, uint64_t{1} << 61)), kDataLoss, "key 'k'"},
      {"huge numbers", Entry("k", ArrayOf(0, kHuge)), kDataLoss, "key 'k'"},
      {"2^62 numbers", Entry("k", ArrayOf(5, uint64_t{1} << 62)), kDataLoss, "key 'k'"},
      {"2^61 numbers", Entry("k", ArrayOf(10, uint64_t{1} << 61)), kDataLoss, "key 'k'"},
      {"array in an array", Entry("k", ArrayOf(9, 1) + ArrayOf(0, 0)), kDataLoss, "key 'k'"},
      {"array of type 13", Entry("k", ArrayOf(13, 0)), kDataLoss, "key 'k'"},
      {"twice", [](auto& f) { f.entries.push_back(f.entries[0]); }, kDataLoss,
       "key 'general.architecture': expected one entry"},
      {"alignment 0", Entry("general.alignment", gguf::Uint32(0)), kDataLoss, "general.alignment"},
      {"alignment 3", Entry("general.alignment", gguf::Uint32(3)), kDataLoss, "general.alignment"},
      {"alignment -32", Entry("general.alignment", gguf::Int32(-32)), kDataLoss,
       "general.alignment"},
      {"alignment 2^31", Entry("general.alignment", gguf::Uint32(1u << 31)), kDataLoss,
       "general.alignment"},
      {"alignment 2^63", Entry("general.alignment", gguf::Uint64(uint64_t{1} << 63)), kDataLoss,
       "general.alignment"},
      {"alignment text", Entry("general.alignment", gguf::Text("32")), kDataLoss,
       "general.alignment"},
  });
}

TEST(GgufTest, RefusesHugeKeyLengths) {
  for (const uint64_t length : {kHuge, uint64_t{1} << 63, uint64_t{1} << 40}) {
    GgufBuilder builder;
    builder.num_entries = 1;
    EXPECT_THAT(Bytes(builder.Build() + gguf::Raw(length)).Parse(),
                StatusIs(kDataLoss, HasSubstr("metadata entry 0")));
  }
}

TEST(GgufTest, RefusesWrongTensors) {
  const std::string norm = "tensor 'output_norm.weight': ";
  const uint64_t head = (TinyLlama().BuildHead().size() + 31) / 32 * 32;
  const uint64_t end = TinyLlama().Build().size() - head;  // Of the data.
  ExpectRefused({
      {"offset 2^40", Offset(kNorm, uint64_t{1} << 40), kDataLoss, norm + "expected data within"},
      {"offset 2^64 - 16", Offset(kNorm, kHuge - 15), kDataLoss, norm},
      {"offset 2^64 - 32", Offset(kNorm, kHuge - 31), kDataLoss, norm + "expected data within"},
      {"offset of the end", Offset(kNorm, end), kDataLoss, norm + "expected data within"},
      {"crooked offset", Offset(kNorm, 1), kDataLoss, norm + "expected an offset aligned to 32"},
      {"shared bytes", Offset(kNorm, 0), kDataLoss, "expected bytes of its own"},
      {"partly shared bytes", Offset(kNorm, 160), kDataLoss, norm + "expected bytes of its own"},
      {"no dimensions", Dimensions({}), kDataLoss, norm + "expected 1 to 4 dimensions, got 0"},
      {"5 dimensions", Dimensions({8, 1, 1, 1, 1}), kDataLoss, norm},
      {"2^32 - 1 dimensions", [](auto& f) { f.num_dimensions = ~0u; }, kDataLoss, "dimensions"},
      {"empty dimension", Dimensions({0}), kDataLoss, norm + "expected a shape"},
      {"empty second dimension", Dimensions({8, 0}), kDataLoss, norm + "expected a shape"},
      {"huge dimension", Dimensions({kHuge}), kDataLoss, norm + "expected a shape"},
      {"product 2^64", Dimensions({uint64_t{1} << 32, uint64_t{1} << 32}), kDataLoss, norm},
      {"product 2^64 + 8", Dimensions({8, (uint64_t{1} << 61) + 1}), kDataLoss, norm},
      {"bytes 2^64", Dimensions({uint64_t{1} << 62}), kDataLoss, norm},
      {"2^42 elements", Dimensions({uint64_t{1} << 42}), kDataLoss, norm + "expected data within"},
      {"type IQ2_XXS", Type(16), kUnimplemented, norm + "type: expected one of F32"},
      {"type of old", Type(4), kUnimplemented, norm},
      {"type unknown", Type(~0u), kUnimplemented, norm + "type: expected one of"},
      {"broken row", Type(2), kDataLoss, norm + "expected rows of whole Q4_0 blocks"},
      {"twice", [](auto& f) { f.tensors.push_back(f.tensors[0]); }, kDataLoss,
       "tensor 'token_embd.weight': expected one of that name"},
  });
}

// An array of numbers that ends behind the file by less than its own count is long.
TEST(GgufTest, RefusesArraysThatEndJustBehindTheFile) {
  for (uint64_t beyond = 1; beyond <= 16; ++beyond) {
    GgufBuilder builder;
    builder.Set("k", gguf::ArrayOf(0, 20 + beyond) + std::string(20, 'x'));
    EXPECT_THAT(Bytes(builder.Build()).Parse(),
                StatusIs(kDataLoss, HasSubstr("key 'k': expected at most 20 elements")));
  }
}

// BR-51.
TEST(GgufTest, FileCutTenBytesShortNamesTheTensor) {
  const std::string whole = TinyLlama().Build();
  EXPECT_THAT(Bytes(whole.substr(0, whole.size() - 10)).Parse(),
              StatusIs(kDataLoss, HasSubstr("tensor 'output_norm.weight': expected data within")));
}

TEST(GgufTest, FilesCutAnywhereAreRefused) {
  const std::string whole = TinyLlama().Build();
  ASSERT_THAT(Bytes(whole).Parse(), IsOk());
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_THAT(Bytes(whole.substr(0, size)).Parse(), StatusIs(kDataLoss, StartsWith("x.gguf: ")))
        << "cut to " << size;
  }
}

// Whatever a byte says: an error or views within the file, never a crash.
TEST(GgufTest, AnyChangedByteIsSurvived) {
  const std::string whole = TinyLlama().Build();
  const size_t head = TinyLlama().BuildHead().size();
  for (size_t place = 0; place < head; ++place) {
    for (const int value : {0, 1, 0x7F, 0x80, 0xFF}) {
      std::string changed = whole;
      changed[place] = static_cast<char>(value);
      const Bytes bytes(changed);
      const auto file = bytes.Parse();
      for (const TensorView& tensor : file.ok() ? file->tensors() : std::vector<TensorView>()) {
        ASSERT_EQ(static_cast<int64_t>(tensor.bytes.size()),
                  BlockBytes(tensor.type, tensor.num_elements()));
      }
    }
  }
}

TEST(GgufTest, NamesInMessagesAreEscapedAndShort) {
  GgufBuilder builder = TinyLlama();
  builder.Tensor(kNorm).offset = uint64_t{1} << 40;
  builder.Tensor(kNorm).name = "a\n\x1b[31m'\xff" + std::string(1000, 'x');
  EXPECT_THAT(
      Bytes(builder.Build()).Parse(),
      StatusIs(kDataLoss, AllOf(HasSubstr("tensor 'a\\n\\x1b[31m\\'\\xff"), Not(HasSubstr("\n")),
                                HasSubstr("x...'"), SizeIs(::testing::Lt(250u)))));
}

}  // namespace
}  // namespace paceline
