#include "models/slice.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "models/gguf.h"
#include "models/weight_source.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using testing::DataPath;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::ReadFile;
using testing::StatusIs;
using testing::TempFolder;
using testing::TinyLlama;
namespace gguf = testing::gguf;

constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class SliceTest : public ::testing::Test {
 protected:
  TempFolder folder_;
  const std::string out_ = folder_.Path("out.gguf");
};

TEST_F(SliceTest, KeepsTheFirstLayersAndEverythingElse) {
  for (const std::string type : {"f32", "bf16", "q4_0", "q8_0"}) {
    const std::string in = DataPath("models/llama/model-" + type + ".gguf");
    const auto whole = OpenModel(in);
    ASSERT_THAT(whole, IsOk());
    for (int32_t num_layers = 1; num_layers <= 3; ++num_layers) {
      SCOPED_TRACE(absl::StrCat(type, ", layers ", num_layers));
      ASSERT_THAT(SliceModel(in, out_, num_layers), IsOk());
      const auto slice = OpenModel(out_);
      ASSERT_THAT(slice, IsOk());
      EXPECT_EQ((*slice)->config().num_layers, num_layers);
      EXPECT_EQ((*slice)->tensors().size(), 2 + 9 * num_layers);
      EXPECT_EQ((*slice)->tokenizer().tokens, (*whole)->tokenizer().tokens);
      for (const TensorView& tensor : (*slice)->tensors()) {
        const auto original = (*whole)->Find(tensor.name);
        ASSERT_THAT(original, IsOk());
        EXPECT_EQ(tensor.shape, (*original)->shape);
        EXPECT_EQ(tensor.type, (*original)->type);
        EXPECT_TRUE(std::ranges::equal(tensor.bytes, (*original)->bytes)) << tensor.name;
      }
    }
  }
  EXPECT_EQ(folder_.NumFiles(), 1);
}

TEST_F(SliceTest, CopiesMetadataByteForByteButTheNumberOfLayers) {
  const std::string in = ReadFile(DataPath("models/llama/model-q4_1.gguf"));
  ASSERT_THAT(SliceModel(DataPath("models/llama/model-q4_1.gguf"), out_, 2), IsOk());
  const std::string out = ReadFile(out_);
  const auto before = GgufFile::Parse(AsBytes(in), "in");
  const auto after = GgufFile::Parse(AsBytes(out), "out");
  ASSERT_THAT(after, IsOk());
  EXPECT_EQ(after->keys(), before->keys());
  for (std::string_view key : before->keys()) {
    if (key == "llama.block_count") continue;
    EXPECT_TRUE(std::ranges::equal(after->entries().at(key).bytes, before->entries().at(key).bytes))
        << key;
  }
  EXPECT_EQ(*after->Integer("llama.block_count"), 2);
}

TEST_F(SliceTest, HonoursVersionAndAlignment) {
  GgufBuilder file = TinyLlama();
  file.version = 2;
  file.alignment = 256;
  file.Set("general.alignment", gguf::Uint32(256));
  ASSERT_THAT(SliceModel(folder_.Write("in.gguf", file.Build()), out_, 1), IsOk());
  const auto slice = OpenModel(out_);
  ASSERT_THAT(slice, IsOk());
  const TensorView& last = (*slice)->tensors().back();
  EXPECT_EQ(std::string(last.bytes.begin(), last.bytes.end()), file.tensors.back().data);
}

TEST_F(SliceTest, ReplacesAnExistingFile) {
  folder_.Write("out.gguf", "old");
  ASSERT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), out_, 1), IsOk());
  EXPECT_THAT(OpenModel(out_), IsOk());
}

TEST_F(SliceTest, RefusesNumbersOfLayersThatTheModelHasNot) {
  for (int32_t num_layers : {-1, 0, 4, std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), out_, num_layers),
                StatusIs(kInvalidArgument,
                         absl::StrCat("layers: expected a number in [1, 3], got ", num_layers)));
  }
  EXPECT_EQ(folder_.NumFiles(), 0);
}

TEST_F(SliceTest, RefusesToOverwriteTheModelByAnyPath) {
  const std::string bytes = TinyLlama().Build();
  const std::string in = folder_.Write("in.gguf", bytes);
  std::filesystem::create_symlink(in, folder_.Path("soft.gguf"));
  std::filesystem::create_hard_link(in, folder_.Path("hard.gguf"));
  for (const std::string name : {"in.gguf", "./in.gguf", "soft.gguf", "hard.gguf"}) {
    EXPECT_THAT(SliceModel(in, folder_.Path(name), 1),
                StatusIs(kInvalidArgument, HasSubstr("out: expected another file")))
        << name;
  }
  EXPECT_EQ(ReadFile(in), bytes);
  EXPECT_EQ(folder_.NumFiles(), 3);
}

TEST_F(SliceTest, RefusesPlacesThatAreNoFiles) {
  ASSERT_EQ(mkfifo(folder_.Path("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder_.Path("folder"));
  for (const std::string& out :
       {folder_.Path("pipe"), folder_.Path("folder"), std::string("/dev/null")}) {
    EXPECT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), out, 1),
                StatusIs(kInvalidArgument, HasSubstr("out: expected the path of a file")));
  }
  EXPECT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), folder_.Path("none/out.gguf"), 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("cannot be written")));
  EXPECT_EQ(folder_.NumFiles(), 2);
}

TEST_F(SliceTest, PassesOnWhatIsWrongWithTheModel) {
  EXPECT_THAT(SliceModel(folder_.Path("none.gguf"), out_, 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.gguf")));
  const std::string bytes = TinyLlama().Build();
  EXPECT_THAT(SliceModel(folder_.Write("cut.gguf", bytes.substr(0, bytes.size() - 10)), out_, 1),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("tensor 'output_norm.weight'")));
  EXPECT_EQ(folder_.NumFiles(), 1);
}

// Files may not grow beyond some size while this lives.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

TEST_F(SliceTest, FailedWriteLeavesTheOldFileAndNoLitter) {
  folder_.Write("out.gguf", "old");
  for (rlim_t bytes : {rlim_t{0}, rlim_t{100}, rlim_t{20000}}) {
    const SizeLimit limit(bytes);
    EXPECT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), out_, 1).message(),
                HasSubstr("out.gguf: cannot be written"));
  }
  EXPECT_EQ(ReadFile(out_), "old");
  EXPECT_EQ(folder_.NumFiles(), 1);
}

TEST_F(SliceTest, LitterOfAKilledProcessIsNoHindrance) {
  folder_.Write(absl::StrCat("out.gguf.", getpid(), ".0.tmp"), "half");
  ASSERT_THAT(SliceModel(DataPath("models/llama/model-q4_0.gguf"), out_, 1), IsOk());
  EXPECT_THAT(OpenModel(out_), IsOk());
}

}  // namespace
}  // namespace paceline
