// Every rule has a page in docs/rules, and the numbers of its worked example are those of the code.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/coupling.h"
#include "tests/support/drawn_trees.h"
#include "tests/support/enumeration.h"
#include "tests/support/fixed_numbers.h"
#include "tests/support/law_cases.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Children;
using testing::IsOk;
using testing::Law;
using testing::Tokens;

std::string ReadPage(const std::string& rule) {
  std::ifstream file(std::string(PACELINE_SOURCE_DIR) + "/docs/rules/" + rule + ".md");
  std::ostringstream page;
  page << file.rdbuf();
  return page.str();
}

// The JSON blocks of a page, each a worked example.
std::vector<json> Examples(const std::string& page) {
  const std::string open = "```json\n";
  std::vector<json> examples;
  for (size_t at = page.find(open); at != std::string::npos; at = page.find(open, at)) {
    at += open.size();
    const size_t end = page.find("```", at);
    examples.push_back(json::parse(page.substr(at, end - at)));
    at = end;
  }
  return examples;
}

Children ChildrenNamed(const std::string& name) {
  if (name == "with replacement") return Children::kWithReplacement;
  if (name == "certain first") return Children::kCertainFirst;
  if (name == "picked") return Children::kPicked;
  EXPECT_EQ(name, "drawn");
  return Children::kWithoutReplacement;
}

struct Example {
  Law law;
  double deviation = 0;  // Of the first position.
};

// The same target and draft row at every position.
Example Run(const std::string& rule, const json& one) {
  const auto row = [&](const char* side) {
    return [probs = one[side].get<std::vector<double>>()](const Tokens&) {
      return testing::MakeRow<double>(probs);
    };
  };
  const testing::TreeShape shape{one.value("width", 1), one.value("depth", 1),
                                 ChildrenNamed(one.value("children", "drawn"))};
  if (rule == "coupled") return {testing::CoupledLaw(row("target"), row("draft"), shape.depth)};
  Example example;
  testing::Enumerate(
      [&](Randomness& randomness) {
        const auto proposal = testing::DrawTree<double>(row("draft"), shape, randomness);
        const auto outcome = testing::Apply<double>(rule, proposal, row("target"), randomness);
        EXPECT_THAT(outcome, IsOk());
        example.deviation = outcome->judged[0].deviation;
        return testing::Emitted(proposal.tree, *outcome);
      },
      [&](const Tokens& emitted, double probability) { example.law[emitted] += probability; });
  return example;
}

void ExpectExample(const std::string& rule, const json& one) {
  const Example example = Run(rule, one);
  const testing::LawFigures figures(example.law);
  const double rejected = figures.lengths.contains(1) ? figures.lengths.at(1) : 0.0;
  for (const auto& entry : one["expected"].items()) {
    const std::string& field = entry.key();
    if (field == "first_token") {
      testing::ExpectFirst(figures, entry.value(), 5e-4);
    } else if (field == "acceptance") {
      EXPECT_NEAR(1 - rejected, entry.value().get<double>(), 5e-4);
    } else if (field == "mean_tokens") {
      EXPECT_NEAR(figures.mean, entry.value().get<double>(), 5e-4);
    } else if (field == "deviation") {
      EXPECT_NEAR(example.deviation, entry.value().get<double>(), 5e-4);
    } else {
      ADD_FAILURE() << field << " is not compared";
    }
  }
}

TEST(RulePagesTest, EveryRuleHasAPageWhoseExampleHolds) {
  for (const Rule& rule : Rules()) {
    const std::string name(rule.name);
    SCOPED_TRACE(name);
    const std::string page = ReadPage(name);
    ASSERT_FALSE(page.empty());
    for (const char* part : {"**Law**", "**Cost**", "**When**", "**Example**"}) {
      EXPECT_NE(page.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(page.find("lossy") != std::string::npos, !rule.lossless);
    const std::vector<json> examples = Examples(page);
    EXPECT_FALSE(examples.empty());
    for (const json& one : examples) {
      SCOPED_TRACE(one.dump());
      EXPECT_FALSE(one["expected"].empty());
      ExpectExample(name, one);
    }
  }
}

}  // namespace
}  // namespace paceline
