#include "runtime/cli/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/status_matchers.h"

namespace paceline::cli {
namespace {

using paceline::testing::IsOkAndHolds;
using paceline::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ParseNumberTest, TakesWholeTextsOnly) {
  EXPECT_THAT(ParseNumber<int32_t>("-4"), IsOkAndHolds(-4));
  EXPECT_THAT(ParseNumber<uint64_t>("18446744073709551615"), IsOkAndHolds(18446744073709551615u));
  EXPECT_THAT(ParseNumber<double>("1e-3"), IsOkAndHolds(1e-3));
  for (const char* text : {"", " 4", "4x", "4 ", "0x4", "2147483648", "4.5", "+4", "--4"}) {
    EXPECT_THAT(ParseNumber<int32_t>(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)))
        << text;
  }
  EXPECT_FALSE(ParseNumber<uint64_t>("-1").ok());
}

TEST(ParseNumberTest, RefusesWhatIsNotFinite) {
  for (const char* text : {"nan", "inf", "-inf", "1e999", "1,5", ""}) {
    EXPECT_FALSE(ParseNumber<double>(text).ok()) << text;
  }
}

TEST(ParseIdsTest, TakesCommaLists) {
  EXPECT_THAT(ParseIds("1, 2,3"), IsOkAndHolds(std::vector<int32_t>{1, 2, 3}));
  for (const char* text : {"", "1,", "1;2", "a"}) EXPECT_FALSE(ParseIds(text).ok()) << text;
}

TEST(ParseLogitBiasTest, TakesNumbersAndBans) {
  using Biases = std::vector<std::pair<int32_t, double>>;
  EXPECT_THAT(ParseLogitBias("5=-1.5,6=-inf"),
              IsOkAndHolds(Biases{{5, -1.5}, {6, -std::numeric_limits<double>::infinity()}}));
  for (const char* text : {"", "5", "5=", "5+1", "=1", "5=inf", "5=nan", "5=1=2"}) {
    EXPECT_FALSE(ParseLogitBias(text).ok()) << text;
  }
}

}  // namespace
}  // namespace paceline::cli
