// Compares the law of one round with what a recorded case (verify.json) expects of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_join.h"
#include "tests/support/laws.h"

namespace paceline::testing {

struct LawFigures {
  explicit LawFigures(const Law& law) {
    for (const auto& [tokens, probability] : law) {
      lengths[tokens.size()] += probability;
      first[tokens[0]] += probability;
      mean += probability * static_cast<double>(tokens.size());
    }
  }
  std::map<size_t, double> lengths;
  std::map<int32_t, double> first;
  double mean = 0;
};

inline void ExpectEmitted(Law law, const nlohmann::json& expected, double tolerance) {
  std::erase_if(law, [](const auto& entry) { return entry.second < 1e-15; });  // Rounding.
  ASSERT_EQ(law.size(), expected.size());
  for (const auto& [tokens, probability] : law) {
    const auto key = absl::StrJoin(tokens, ",");
    ASSERT_TRUE(expected.contains(key)) << key;
    EXPECT_NEAR(probability, expected[key].get<double>(), tolerance) << key;
  }
}

inline void ExpectFirst(const LawFigures& figures, const nlohmann::json& expected,
                        double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto found = figures.first.find(static_cast<int32_t>(i));
    const double probability = found == figures.first.end() ? 0 : found->second;
    EXPECT_NEAR(probability, expected[i].get<double>(), tolerance) << "token " << i;
  }
}

// How far the first tokens of `law` are from the target's, all brought to one length.
inline double DistanceFrom(const Law& law, const RowOf<double>& target) {
  size_t longest = 0;
  for (const auto& [tokens, probability] : law) longest = std::max(longest, tokens.size());
  return TotalVariation(Extend<double>(law, longest, target), TargetLaw<double>(longest, target));
}

// Compares every expected field, of those that are not about the law what other(field, value) takes.
template <typename Other>
void ExpectLaw(const nlohmann::json& one, const Law& law, const RowOf<double>& target, Other other) {
  const LawFigures figures(law);
  const double tolerance = one["tolerance"].get<double>();
  for (const auto& entry : one["expected"].items()) {
    const std::string& field = entry.key();
    const nlohmann::json& expected = entry.value();
    if (field == "emitted") {
      ExpectEmitted(law, expected, tolerance);
    } else if (field == "lossless") {
      EXPECT_EQ(DistanceFrom(law, target) < 1e-12, expected.get<bool>())
          << DistanceFrom(law, target);
    } else if (field == "mean_tokens") {
      EXPECT_NEAR(figures.mean, expected.get<double>(), tolerance);
    } else if (field == "accepted_mean") {
      EXPECT_NEAR(figures.mean - 1, expected.get<double>(), tolerance);
    } else if (field == "acceptance") {
      EXPECT_NEAR(figures.mean - 1, expected.get<double>(), tolerance);
    } else if (field == "tokens_pmf") {
      for (size_t i = 0; i < expected.size(); ++i) {
        const auto found = figures.lengths.find(i + 1);
        EXPECT_NEAR(found == figures.lengths.end() ? 0.0 : found->second,
                    expected[i].get<double>(), tolerance);
      }
    } else if (field == "first_token" || field == "output") {
      ExpectFirst(figures, expected, tolerance);
    } else if (!other(field, expected)) {
      ADD_FAILURE() << "expected field " << field << " is not compared";
    }
  }
}

}  // namespace paceline::testing
