// What misuse of an exact rule gives (verify.json): drafts chosen by what was drawn, and noise that is
// read twice. The harness that proves the rules must see every one of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "sampling/draw.h"
#include "tests/support/enumeration.h"
#include "tests/support/fixed_numbers.h"
#include "tests/support/law_cases.h"
#include "tests/support/markov_rows.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using nlohmann::json;
using testing::Apply;
using testing::Emitted;
using testing::IsOk;
using testing::Law;
using testing::MakeRow;
using testing::Numbers;
using testing::Tokens;

constexpr double kExact = 1e-12;

struct OneDraft {
  int32_t token;
  Distribution<double> row;
};

OneDraft DrawOne(const Distribution<double>& row, uint16_t sub, Randomness& randomness) {
  const NoiseAddress noise{0, Purpose::kDraft, 0, sub};
  return {static_cast<int32_t>(randomness.Draw(noise, row.probs(), {}).index), row};
}

// What the drafter of the case hands over after drawing.
Proposal<double> Misdrafted(const json& one, Randomness& randomness) {
  const json& inputs = one["inputs"];
  const json& params = one["params"];
  const auto row = [&](const char* name) { return MakeRow<double>(Numbers<double>(inputs[name])); };
  Proposal<double> proposal;
  const auto hand_over = [&](const OneDraft& draft) {
    proposal.tree.Add(-1, draft.token);
    proposal.draft_rows.push_back(ProposalDist<double>::Sampled(draft.row));
    return proposal;
  };
  if (params.contains("pick")) {
    const OneDraft first = DrawOne(row("q1"), 1, randomness);
    const OneDraft second = DrawOne(row("q2"), 2, randomness);
    return hand_over(first.row.Prob(first.token) >= second.row.Prob(second.token) ? first : second);
  }
  const OneDraft draft = DrawOne(row("q"), 0, randomness);
  const bool dropped = params.contains("drop_if_q_below")
                           ? draft.row.Prob(draft.token) < params["drop_if_q_below"].get<double>()
                           : draft.token != params["verify_only_if_token"].get<int32_t>();
  return dropped ? proposal : hand_over(draft);
}

void RunMisdraft(const json& one) {
  const auto target = [&](const Tokens&) { return MakeRow<double>(Numbers<double>(one["inputs"]["p"])); };
  Law law;
  testing::Enumerate(
      [&](Randomness& randomness) {
        const Proposal<double> proposal = Misdrafted(one, randomness);
        const auto outcome = Apply<double>("standard", proposal, target, randomness);
        EXPECT_THAT(outcome, IsOk());
        return Tokens{Emitted(proposal.tree, *outcome)[0]};
      },
      [&](const Tokens& first, double probability) { law[first] += probability; });
  const double tolerance = one["tolerance"].get<double>();
  testing::ExpectFirst(testing::LawFigures(law), one["expected"]["output"], tolerance);
  EXPECT_NEAR(testing::DistanceFrom(law, target), one["expected"]["total_variation"].get<double>(),
              tolerance);
  EXPECT_GT(testing::DistanceFrom(law, target), kExact);
}

// Draft and residual drawn by Gumbel noise: that of one address, or of two. Simulated, since such a
// draw cannot be branched.
std::vector<double> GumbelOutput(const json& one, Purpose draft_purpose) {
  const auto target = Numbers<double>(one["inputs"]["p"]);
  const auto row = MakeRow<double>(Numbers<double>(one["inputs"]["q"]));
  constexpr int kDraws = 400'000;
  std::vector<double> output(target.size());
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    StreamRandomness randomness({seed, 0}, DrawMethod::kGumbel);
    Proposal<double> proposal;
    const TokenDraw draw = randomness.Draw({0, draft_purpose}, row.probs(), {});
    proposal.tree.Add(-1, static_cast<int32_t>(draw.index));
    proposal.draft_rows.push_back(ProposalDist<double>::Sampled(row));
    const auto outcome = Apply<double>(
        "standard", proposal, [&](const Tokens&) { return MakeRow<double>(target); }, randomness);
    EXPECT_THAT(outcome, IsOk());
    output[Emitted(proposal.tree, *outcome)[0]] += 1.0 / kDraws;
  }
  return output;
}

void RunSharedNoise(const json& one) {
  const std::vector<double> shared = GumbelOutput(one, Purpose::kToken);
  const std::vector<double> apart = GumbelOutput(one, Purpose::kDraft);
  for (size_t id = 0; id < shared.size(); ++id) {
    const double bound = 1.5 * one["tolerance"].get<double>();  // 400,000 draws, and theirs.
    EXPECT_NEAR(shared[id], one["expected"]["output"][id].get<double>(), bound);
    EXPECT_NEAR(apart[id], one["expected"]["independent"][id].get<double>(), bound);
  }
}

// Leaves the offset out of the addresses of some purposes, so that a later round reads the numbers of
// an earlier one.
class WithoutOffset : public Randomness {
 public:
  WithoutOffset(Randomness& randomness, bool draft, bool coin)
      : randomness_(randomness), draft_(draft), coin_(coin) {}
  CoinFlip Coin(const NoiseAddress& address, double target_prob, double draft_prob) override {
    return randomness_.Coin(Changed(address), target_prob, draft_prob);
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const float> weights,
                 std::span<const int32_t> ids) override {
    return randomness_.Draw(Changed(address), weights, ids);
  }
  TokenDraw Draw(const NoiseAddress& address, std::span<const double> weights,
                 std::span<const int32_t> ids) override {
    return randomness_.Draw(Changed(address), weights, ids);
  }

 private:
  NoiseAddress Changed(NoiseAddress address) const {
    const bool reused = (draft_ && address.purpose == Purpose::kDraft) ||
                        (coin_ && address.purpose == Purpose::kAccept);
    if (reused) address.offset = 0;
    return address;
  }
  Randomness& randomness_;
  bool draft_;
  bool coin_;
};

// The round at `position`: k drafts of one row, verified against one target row.
Tokens PlayRound(const json& one, uint32_t position, Randomness& randomness) {
  const auto target = MakeRow<double>(Numbers<double>(one["inputs"]["p"]));
  const auto draft = MakeRow<double>(Numbers<double>(one["inputs"]["q"]));
  Proposal<double> proposal;
  for (int32_t i = 0; i < one["params"]["k"].get<int32_t>(); ++i) {
    const NoiseAddress noise{position + i, Purpose::kDraft, static_cast<uint8_t>(i)};
    proposal.tree.Add(i - 1, static_cast<int32_t>(randomness.Draw(noise, draft.probs(), {}).index));
    proposal.draft_rows.push_back(ProposalDist<double>::Sampled(draft));
  }
  testing::PrefixRows<double> rows(proposal.tree, [&](const Tokens&) { return target; });
  const Rule* rule = *FindRule(one["params"]["method"].get<std::string>());
  const auto outcome = rule->verify_double({proposal, rows, randomness, position});
  EXPECT_THAT(outcome, IsOk());
  return Emitted(proposal.tree, *outcome);
}

// The law of the token at position 2: the first round's where that accepted something, else the
// second's, which drafts this position again.
void RunNoiseReuse(const json& one) {
  std::map<int32_t, double> law;
  testing::Enumerate(
      [&](Randomness& randomness) {
        WithoutOffset reusing(randomness, one["params"]["reuse_draft_noise"].get<bool>(),
                              one["params"]["reuse_coin"].get<bool>());
        const Tokens first = PlayRound(one, 1, reusing);
        return first.size() > 1 ? first[1] : PlayRound(one, 2, reusing)[0];
      },
      [&](int32_t token, double probability) { law[token] += probability; });
  const auto target = Numbers<double>(one["inputs"]["p"]);
  double distance = 0;
  for (size_t id = 0; id < target.size(); ++id) {
    const double share = law[static_cast<int32_t>(id)];
    EXPECT_NEAR(share, one["expected"]["second_token"][id].get<double>(),
                one["tolerance"].get<double>());
    distance += std::abs(share - target[id]) / 2;
  }
  EXPECT_EQ(distance < kExact, one["expected"]["lossless"].get<bool>()) << distance;
}

TEST(MisuseCasesTest, EveryBiasIsSeenAndOfTheRecordedSize) {
  const json cases = testing::ReadJson("verify.json");
  int biased = 0;
  int reuse = 0;
  for (const auto& one : cases["cases"]) {
    const std::string name = one["name"].get<std::string>();
    SCOPED_TRACE(name);
    if (name == "biased/shared-gumbel-noise") {
      RunSharedNoise(one);
      ++biased;
    } else if (name.starts_with("biased/")) {
      RunMisdraft(one);
      ++biased;
    } else if (name.starts_with("noise-reuse/")) {
      RunNoiseReuse(one);
      ++reuse;
    }
  }
  std::printf("[cases] verify.json: %d biased drafts, %d uses of noise\n", biased, reuse);
  EXPECT_EQ(biased, 4);
  EXPECT_EQ(reuse, 8);
}

}  // namespace
}  // namespace paceline
