#include "runtime/telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/support/test_data.h"

namespace paceline {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;

std::vector<json> CounterCases() {
  const json data = testing::ReadJson("verify.json");
  std::vector<json> cases;
  for (const json& test_case : data["cases"]) {
    const std::string name = test_case["name"];
    if (name.rfind("metric/counters/", 0) == 0) cases.push_back(test_case);
  }
  return cases;
}

void ExpectRate(const std::optional<double>& got, const json& want, const std::string& name) {
  ASSERT_EQ(got.has_value(), !want.is_null()) << name;
  if (got) {
    EXPECT_NEAR(*got, want.get<double>(), 1e-6) << name;
  }
}

// A case's round is [drafted, accepted, place of an ending inside the accepted prefix or null].
void AddCaseRound(const json& round, Telemetry& telemetry) {
  if (round[2].is_null()) {
    telemetry.AddRound(round[0], round[0], round[1], round[1].get<int32_t>() + 1);
  } else {
    telemetry.AddRound(round[2], round[2], round[2], round[2]);
  }
}

void ExpectCase(const Telemetry& telemetry, const json& want) {
  EXPECT_EQ(telemetry.num_rounds, want["num_rounds"]);
  EXPECT_EQ(telemetry.num_drafts, want["num_drafts"]);
  EXPECT_EQ(telemetry.num_draft_tokens, want["num_draft_tokens"]);
  EXPECT_EQ(telemetry.num_accepted_tokens, want["num_accepted_tokens"]);
  EXPECT_EQ(telemetry.num_emitted_tokens, want["num_emitted_tokens"]);
  ExpectRate(telemetry.AcceptanceRate(), want["acceptance_rate"], "acceptance_rate");
  ExpectRate(telemetry.MeanAcceptanceLength(), want["mean_acceptance_length"],
             "mean_acceptance_length");
  ExpectRate(telemetry.TokensPerRound(), want["tokens_per_round"], "tokens_per_round");
  EXPECT_EQ(json(telemetry.acceptance_histogram), want["acceptance_histogram"]);
  const auto accepted = telemetry.AcceptedPerPosition();
  ASSERT_EQ(accepted.size(), want["accepted_per_position"].size());
  const auto conditional = telemetry.ConditionalAcceptancePerPosition();
  ASSERT_EQ(conditional.size(), want["conditional_acceptance_per_position"].size());
  for (size_t i = 0; i < accepted.size(); ++i) {
    ExpectRate(accepted[i], want["accepted_per_position"][i], "accepted_per_position");
    ExpectRate(conditional[i], want["conditional_acceptance_per_position"][i],
               "conditional_acceptance_per_position");
  }
}

TEST(TelemetryTest, CountersEqualTheRecordedCases) {
  int32_t num_cases = 0;
  for (const json& test_case : CounterCases()) {
    SCOPED_TRACE(test_case["name"].get<std::string>());
    ++num_cases;
    Telemetry telemetry;
    for (const json& round : test_case["inputs"]["rounds"]) AddCaseRound(round, telemetry);
    ExpectCase(telemetry, test_case["expected"]);
  }
  EXPECT_EQ(num_cases, 5);
}

TEST(TelemetryTest, MergedPartsEqualTheWholeForRecordedCases) {
  for (const json& test_case : CounterCases()) {
    SCOPED_TRACE(test_case["name"].get<std::string>());
    Telemetry parts[2];
    size_t next = 0;
    for (const json& round : test_case["inputs"]["rounds"]) AddCaseRound(round, parts[next++ % 2]);
    Telemetry merged;
    merged.Merge(parts[0]);
    merged.Merge(parts[1]);
    ExpectCase(merged, test_case["expected"]);
  }
}

TEST(TelemetryTest, RatesWithoutTrialsAreNull) {
  const Telemetry telemetry;
  EXPECT_EQ(telemetry.AcceptanceRate(), std::nullopt);
  EXPECT_EQ(telemetry.MeanAcceptanceLength(), std::nullopt);
  EXPECT_EQ(telemetry.TokensPerRound(), std::nullopt);
  EXPECT_EQ(telemetry.JudgedAcceptance(), std::nullopt);
  EXPECT_EQ(telemetry.TokensPerSecond(), std::nullopt);
  EXPECT_EQ(telemetry.expected_acceptance.Value(), std::nullopt);
  EXPECT_TRUE(telemetry.AcceptedPerPosition().empty());
  EXPECT_EQ(telemetry.JudgedAcceptanceInterval().low, 0);
  EXPECT_EQ(telemetry.JudgedAcceptanceInterval().high, 1);
}

TEST(TelemetryTest, TreesCountNodesAsDraftedAndDepthsAsPositions) {
  Telemetry telemetry;
  telemetry.AddRound(/*num_drafted=*/7, /*depth=*/3, /*num_accepted=*/1, /*num_emitted=*/2);
  EXPECT_EQ(telemetry.num_draft_tokens, 7);
  EXPECT_THAT(telemetry.drafted_at, ElementsAre(1, 1, 1));
  EXPECT_THAT(telemetry.accepted_at, ElementsAre(1, 0, 0));
  EXPECT_THAT(telemetry.reached_at, ElementsAre(1, 1, 0));
}

TEST(TelemetryTest, InfiniteDivergenceIsCountedApart) {
  Telemetry telemetry;
  telemetry.AddJudged({0.5, 0.5, 0.25});
  telemetry.AddJudged({0.5, 0.5, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(telemetry.num_infinite_kl, 1);
  EXPECT_EQ(telemetry.kl_divergence.Value(), 0.25);
  EXPECT_EQ(telemetry.total_variation.Value(), 0.5);
  EXPECT_EQ(telemetry.total_variation.count, 2);
}

TEST(TelemetryTest, DeterministicRowsHaveNoDivergence) {
  Telemetry telemetry;
  telemetry.AddJudged({0.75});
  EXPECT_EQ(telemetry.expected_acceptance.Value(), 0.75);
  EXPECT_EQ(telemetry.total_variation.Value(), std::nullopt);
  EXPECT_EQ(telemetry.kl_divergence.Value(), std::nullopt);
  EXPECT_EQ(telemetry.num_infinite_kl, 0);
}

TEST(TelemetryTest, JudgedAcceptanceLeavesOutWhatARefusalHides) {
  // Of 3 drafted, one accepted, one refused, one never judged.
  Telemetry telemetry;
  telemetry.AddRound(3, 3, 1, 2);
  telemetry.AddJudged({0.9, 0.1, 0.1});
  telemetry.AddJudged({0.9, 0.1, 0.1});
  EXPECT_EQ(telemetry.JudgedAcceptance(), 0.5);
  EXPECT_NEAR(*telemetry.AcceptanceRate(), 1.0 / 3, 1e-12);
  const Interval interval = telemetry.JudgedAcceptanceInterval();
  EXPECT_NEAR(interval.low, WilsonInterval(1, 2).low, 1e-12);
  EXPECT_NEAR(interval.high, WilsonInterval(1, 2).high, 1e-12);
}

TEST(TelemetryTest, MergeAddsEveryMeasure) {
  Telemetry first;
  first.AddRound(2, 2, 1, 2);
  first.AddJudged({0.5, 0.5, 0.25});
  first.entropy_bits_raw.Add(2);
  first.entropy_bits_warped.Add(1);
  first.survivors.Add(4);
  first.draft_ms = 1;
  first.target_ms = 2;
  first.verify_ms = 3;
  first.rounds_ms = 7;
  Telemetry twice = first;
  twice.Merge(first);
  EXPECT_EQ(twice.num_emitted_tokens, 4);
  EXPECT_EQ(twice.expected_acceptance.count, 2);
  EXPECT_EQ(twice.kl_divergence.sum, 0.5);
  EXPECT_EQ(twice.entropy_bits_raw.sum, 4);
  EXPECT_EQ(twice.entropy_bits_warped.sum, 2);
  EXPECT_EQ(twice.survivors.sum, 8);
  EXPECT_EQ(twice.draft_ms, 2);
  EXPECT_EQ(twice.target_ms, 4);
  EXPECT_EQ(twice.verify_ms, 6);
  EXPECT_EQ(twice.rounds_ms, 14);
  EXPECT_NEAR(*twice.TokensPerSecond(), 4 / 0.014, 1e-9);
}

// accepted_at[i] never exceeds reached_at[i], nor that drafted_at[i], whatever the rounds were.
TEST(TelemetryTest, PositionsAreConsistentOnRandomRounds) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Telemetry telemetry;
    const auto rounds = static_cast<int32_t>(random() % 20);
    for (int32_t i = 0; i < rounds; ++i) {
      const auto drafted = static_cast<int32_t>(random() % 6);
      const auto accepted = static_cast<int32_t>(random() % (drafted + 1));
      telemetry.AddRound(drafted, drafted, accepted, accepted + 1);
    }
    int64_t accepted = 0;
    int64_t drafts = 0;
    for (size_t i = 0; i < telemetry.drafted_at.size(); ++i) {
      EXPECT_LE(telemetry.accepted_at[i], telemetry.reached_at[i]);
      EXPECT_LE(telemetry.reached_at[i], telemetry.drafted_at[i]);
      accepted += telemetry.accepted_at[i];
    }
    for (int64_t count : telemetry.acceptance_histogram) drafts += count;
    EXPECT_EQ(accepted, telemetry.num_accepted_tokens);
    EXPECT_EQ(drafts, telemetry.num_drafts);
    EXPECT_EQ(telemetry.num_emitted_tokens, telemetry.num_accepted_tokens + telemetry.num_rounds);
  }
}

}  // namespace
}  // namespace paceline
