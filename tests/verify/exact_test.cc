// Losslessness, proven: every outcome of a rule is enumerated with its probability, the double
// instance of the code that ships, and the law of the emitted tokens is the target's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/philox.h"
#include "sampling/mirostat2.h"
#include "sampling/pipeline.h"
#include "tests/support/chi_square.h"
#include "tests/support/coupling.h"
#include "tests/support/drawn_trees.h"
#include "tests/support/enumeration.h"
#include "tests/support/laws.h"
#include "tests/support/monte_carlo.h"
#include "tests/support/status_matchers.h"
#include "verify/rules.h"

namespace paceline {
namespace {

using testing::Children;
using testing::DrawTree;
using testing::Emitted;
using testing::Enumerate;
using testing::Extend;
using testing::IsOk;
using testing::Law;
using testing::PrefixRows;
using testing::RowOf;
using testing::TargetLaw;
using testing::Tokens;
using testing::TotalVariation;
using testing::TreeDrawer;
using testing::TreeShape;

constexpr int kVocabulary = 4;
constexpr uint32_t kPosition = 2;  // Of the first drafted token.
constexpr double kExact = 1e-12;
constexpr double kCaught = 1e-3;  // A wrong rule must miss by at least so much.
using Row = Distribution<double>;
template <typename Real>
using RuleOf = absl::StatusOr<VerifyOutcome> (*)(const RuleInput<Real>&);
using RuleFunction = RuleOf<double>;

uint64_t HashOf(uint64_t seed, const Tokens& prefix) {
  for (int32_t token : prefix) seed = (seed ^ (token + 1)) * 0x9E3779B97F4A7C15;
  return seed;
}

double Noise(uint64_t seed, uint32_t index) {
  return TokenUniform({seed, 0}, {0, Purpose::kExplore}, index);
}

// Rows that depend on the whole prefix; some have zeros, some are one-hot.
RowOf<double> HashedRows(uint64_t seed) {
  return [seed](const Tokens& prefix) {
    const uint64_t hash = HashOf(seed, prefix);
    const double shape = Noise(hash, 100);
    if (shape < 0.1)
      return Row::OneHot(static_cast<int32_t>(Noise(hash, 101) * kVocabulary), kVocabulary);
    std::vector<double> weights;
    for (uint32_t id = 0; id < kVocabulary; ++id) {
      const bool zero = shape < 0.5 && Noise(hash, 10 + id) < 0.3 && id > 0;
      weights.push_back(zero ? 0.0 : -std::log(Noise(hash, id)));
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= total;
    return testing::MakeRow<double>(weights);
  };
}

Row WarpedRow(uint64_t seed, const SamplingOptions& options, const Tokens& prefix, double mu) {
  const uint64_t hash = HashOf(seed, prefix);
  std::vector<double> logits;
  for (uint32_t id = 0; id < kVocabulary; ++id) logits.push_back(4 * Noise(hash, id) - 2);
  const Tokens prompt = {1, 3};
  TokenCounts counts;
  counts.AddPrompt(prompt);
  RowContext context;
  context.history = {prompt, static_cast<int32_t>(prompt.size()), prefix, &counts};
  context.key = {seed % 50, 0};  // Coins are those of the sequence: one for target and draft.
  context.position = kPosition + static_cast<uint32_t>(prefix.size());
  context.mirostat_mu = mu;
  std::vector<float> unconditional;
  for (uint32_t id = 0; id < kVocabulary; ++id) {
    unconditional.push_back(static_cast<float>(3 * Noise(hash, 200 + id)));
  }
  context.unconditional = unconditional;
  auto pipeline = Pipeline<double>::Create(options, kVocabulary);
  EXPECT_THAT(pipeline, IsOk());
  auto row = pipeline->Apply(std::span<const double>(logits), context);
  EXPECT_THAT(row, IsOk());
  return *std::move(row);
}

// A target that goes through the pipeline, with stages that look at the history of each row, at the
// coin of its position and at what the tokens before it were worth.
RowOf<double> WarpedRows(uint64_t seed, SamplingOptions options) {
  return [seed, options](const Tokens& prefix) {
    double mu = FirstMu(options);
    if (options.mirostat_tau > 0) {
      Tokens before;
      for (const int32_t token : prefix) {
        mu = NextMu(options, mu, WarpedRow(seed, options, before, mu).Prob(token));
        before.push_back(token);
      }
    }
    return WarpedRow(seed, options, prefix, mu);
  };
}

std::vector<SamplingOptions> Settings() {
  std::vector<SamplingOptions> settings(10);
  settings[0].repetition_penalty = 1.7;
  settings[0].frequency_penalty = 0.8;
  settings[0].presence_penalty = -0.4;
  settings[1].temperature = 0.6;
  settings[1].top_k = 3;
  settings[1].frequency_penalty = 1.1;
  settings[2].min_tokens = 2;
  settings[2].eos_ids = {0};
  settings[2].min_p = 0.2;
  settings[3].top_p = 0.8;
  settings[3].bad_words = {{2, 1}, {3}};
  settings[3].logit_bias = {{1, 0.7}};
  settings[4].no_repeat_ngram_size = 2;
  settings[4].dynatemp_range = 0.5;
  settings[4].typical_p = 0.8;
  settings[5].top_n_sigma = 1.2;
  settings[5].epsilon_cutoff = 0.1;
  settings[5].eta_cutoff = 0.2;
  settings[6].dry_multiplier = 1.3;
  settings[6].dry_allowed_length = 1;
  settings[6].top_h = 0.8;
  settings[7].xtc_probability = 0.5;
  settings[7].xtc_threshold = 0.15;
  settings[7].order = {"llama"};
  settings[7].temperature = 1.2;
  settings[8].mirostat_tau = 1.2;
  settings[8].mirostat_eta = 0.4;
  settings[9].guidance_scale = 1.8;
  settings[9].top_p = 0.9;
  settings[9].presence_penalty = 0.6;
  return settings;
}

// How each position of a chain is drafted.
enum class Draft { kSampled, kDeterministic, kMixed };

// Draws a chain from `draft` with `randomness`, or takes its argmax.
template <typename Real>
Proposal<Real> DrawChain(const RowOf<Real>& draft, int32_t length, Draft kind,
                         Randomness& randomness) {
  Proposal<Real> proposal;
  for (int32_t i = 0; i < length; ++i) {
    Distribution<Real> row = draft(proposal.tree.tokens);
    const bool drawn = kind == Draft::kSampled || (kind == Draft::kMixed && i % 2 == 0);
    const NoiseAddress noise{kPosition + i, Purpose::kDraft, static_cast<uint8_t>(i)};
    const int32_t token =
        drawn ? row.IdAt(randomness.Draw(noise, row.probs(), row.ids()).index) : row.Argmax();
    proposal.tree.Add(i - 1, token);
    proposal.draft_rows.push_back(drawn ? ProposalDist<Real>::Sampled(std::move(row))
                                        : ProposalDist<Real>::Deterministic());
  }
  return proposal;
}

// The law of one round: drafting and verification enumerated together.
template <typename Real, typename Propose>
Law RoundLaw(RuleOf<Real> rule, const RowOf<Real>& rows_of, Propose propose) {
  const RowOf<Real> target = testing::Memoized(rows_of);
  Law law;
  Enumerate(
      [&](Randomness& randomness) {
        const Proposal<Real> proposal = propose(randomness);
        PrefixRows<Real> rows(proposal.tree, target);
        const auto outcome = rule({proposal, rows, randomness, kPosition});
        EXPECT_THAT(outcome, IsOk());
        return Emitted(proposal.tree, *outcome);
      },
      [&](const Tokens& emitted, double probability) { law[emitted] += probability; });
  return law;
}

// How far the first `length` + 1 tokens after `law` are from the target's.
double Distance(const Law& law, int32_t length, const RowOf<double>& target) {
  const size_t all = static_cast<size_t>(length) + 1;
  return TotalVariation(Extend<double>(law, all, target), TargetLaw<double>(all, target));
}

double Deviation(RuleFunction rule, const RowOf<double>& target, const RowOf<double>& draft,
                 int32_t length, Draft kind) {
  const Law law = RoundLaw(rule, target, [&](Randomness& randomness) {
    return DrawChain(draft, length, kind, randomness);
  });
  return Distance(law, length, target);
}

// Largest deviation of a rule over random targets, drafts and lengths.
class Largest {
 public:
  explicit Largest(std::string name) : name_(std::move(name)) {}
  ~Largest() {
    std::printf("[exact] %-34s largest total variation %.2g over %d laws\n", name_.c_str(),
                largest_, count_);
  }
  void Add(double deviation, const std::string& where) {
    largest_ = std::max(largest_, deviation);
    ++count_;
    EXPECT_LE(deviation, kExact) << name_ << ": " << where;
  }

 private:
  std::string name_;
  double largest_ = 0;
  int count_ = 0;
};

RuleFunction RuleNamed(const char* name) { return (*FindRule(name))->verify_double; }

void ProveChains(const char* rule, Draft kind, const char* kind_name) {
  Largest largest(std::string(rule) + ", " + kind_name + " chain");
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    for (int32_t length = 0; length <= 3; ++length) {
      largest.Add(
          Deviation(RuleNamed(rule), HashedRows(seed), HashedRows(seed + 1000), length, kind),
          "seed " + std::to_string(seed) + ", K " + std::to_string(length));
    }
  }
}

TEST(ExactTest, StandardOnASampledChain) { ProveChains("standard", Draft::kSampled, "sampled"); }
TEST(ExactTest, StandardOnADeterministicChain) {
  ProveChains("standard", Draft::kDeterministic, "deterministic");
}
TEST(ExactTest, StandardOnAMixedChain) { ProveChains("standard", Draft::kMixed, "mixed"); }
TEST(ExactTest, MatchOnASampledChain) { ProveChains("match", Draft::kSampled, "sampled"); }
TEST(ExactTest, MatchOnADeterministicChain) {
  ProveChains("match", Draft::kDeterministic, "deterministic");
}

TEST(ExactTest, MatchOnAMixedChain) { ProveChains("match", Draft::kMixed, "mixed"); }

// On chains the rules for several candidates are those for one.
TEST(ExactTest, RrsOnASampledChain) { ProveChains("rrs", Draft::kSampled, "sampled"); }
TEST(ExactTest, KSeqOnASampledChain) { ProveChains("k-seq", Draft::kSampled, "sampled"); }
TEST(ExactTest, SampledFirstOnASampledChain) {
  ProveChains("sampled-first", Draft::kSampled, "sampled");
}
TEST(ExactTest, TraversalOnASampledChain) { ProveChains("traversal", Draft::kSampled, "sampled"); }
TEST(ExactTest, TraversalOnADeterministicChain) {
  ProveChains("traversal", Draft::kDeterministic, "deterministic");
}
TEST(ExactTest, TraversalOnAMixedChain) { ProveChains("traversal", Draft::kMixed, "mixed"); }

TEST(ExactTest, BlockOnASampledChain) { ProveChains("block", Draft::kSampled, "sampled"); }
TEST(ExactTest, BlockOnADeterministicChain) {
  ProveChains("block", Draft::kDeterministic, "deterministic");
}
TEST(ExactTest, BlockOnAMixedChain) { ProveChains("block", Draft::kMixed, "mixed"); }

double MeanTokens(const Law& law) {
  double mean = 0;
  for (const auto& [tokens, probability] : law) {
    mean += probability * static_cast<double>(tokens.size());
  }
  return mean;
}

double MeanLength(const char* rule, uint64_t seed, int32_t length, Draft kind) {
  return MeanTokens(RoundLaw(RuleNamed(rule), HashedRows(seed), [&](Randomness& randomness) {
    return DrawChain(HashedRows(seed + 1000), length, kind, randomness);
  }));
}

// No rule emits fewer tokens than the simpler one; block and standard agree for one token and for
// one-hot drafts.
TEST(ExactTest, BlockIsNotShorterThanStandardNorStandardThanMatch) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    for (int32_t length = 1; length <= 3; ++length) {
      const double block = MeanLength("block", seed, length, Draft::kSampled);
      const double standard = MeanLength("standard", seed, length, Draft::kSampled);
      EXPECT_GE(block, standard - kExact);
      EXPECT_GE(standard, MeanLength("match", seed, length, Draft::kSampled) - kExact);
      if (length == 1) {
        EXPECT_NEAR(block, standard, kExact);
      }
      EXPECT_NEAR(MeanLength("block", seed, length, Draft::kDeterministic),
                  MeanLength("standard", seed, length, Draft::kDeterministic), kExact);
    }
  }
  EXPECT_GT(MeanLength("block", 1, 3, Draft::kSampled),
            MeanLength("standard", 1, 3, Draft::kSampled) + 1e-3);
}

TEST(ExactTest, StandardWhereDraftEqualsTarget) {
  Largest largest("standard, draft = target");
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    largest.Add(
        Deviation(RuleNamed("standard"), HashedRows(seed), HashedRows(seed), 3, Draft::kSampled),
        "seed " + std::to_string(seed));
  }
}

TEST(ExactTest, RowsThatDependOnTheirOwnHistory) {
  Largest largest("standard, block and match, history stages");
  int setting = 0;
  for (const SamplingOptions& options : Settings()) {
    for (const char* rule : {"standard", "block", "match"}) {
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        for (Draft kind : {Draft::kSampled, Draft::kDeterministic, Draft::kMixed}) {
          const RowOf<double> target = WarpedRows(seed, options);
          const RowOf<double> draft = WarpedRows(seed + 50, options);
          largest.Add(Deviation(RuleNamed(rule), target, draft, 3, kind),
                      std::string(rule) + ", setting " + std::to_string(setting));
        }
      }
    }
    ++setting;
  }
}

// ---- Drawn trees.

double DrawnTreeDeviation(const char* rule, const RowOf<double>& target, const RowOf<double>& draft,
                          const RowOf<double>& other, const TreeShape& shape) {
  int32_t depth = 0;
  const Law law = RoundLaw(RuleNamed(rule), target, [&](Randomness& randomness) {
    auto proposal = TreeDrawer<double>(draft, other, shape, kPosition, randomness).Draw();
    EXPECT_THAT(proposal.Validate(kVocabulary), IsOk());
    depth = std::max(depth, proposal.tree.MaxDepth());
    return proposal;
  });
  return Distance(law, depth, target);
}

constexpr TreeShape Shape(int32_t width, int32_t depth, Children children,
                          double expand_if_at_least = 0) {
  return {width, depth, children, expand_if_at_least};
}

std::string Describe(const TreeShape& shape, uint64_t seed) {
  return "width " + std::to_string(shape.width) + ", depth " + std::to_string(shape.depth) +
         ", seed " + std::to_string(seed);
}

void ProveTrees(const char* rule, const char* name, const std::vector<TreeShape>& shapes) {
  Largest largest(std::string(rule) + ", " + name);
  for (const TreeShape& shape : shapes) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      largest.Add(DrawnTreeDeviation(rule, HashedRows(seed), HashedRows(seed + 1000),
                                     HashedRows(seed + 2000), shape),
                  Describe(shape, seed));
    }
  }
}

std::vector<TreeShape> Shapes(Children children) {
  return {Shape(1, 2, children), Shape(2, 1, children), Shape(3, 1, children),
          Shape(4, 1, children), Shape(2, 2, children), Shape(2, 2, children, 0.4)};
}

TEST(ExactTest, RrsWithoutReplacement) {
  ProveTrees("rrs", "without replacement", Shapes(Children::kWithoutReplacement));
}
TEST(ExactTest, RrsWithReplacement) {
  ProveTrees("rrs", "with replacement", Shapes(Children::kWithReplacement));
}
TEST(ExactTest, RrsWithMixedDrafters) {
  ProveTrees("rrs", "mixed drafters", Shapes(Children::kMixed));
}
TEST(ExactTest, KSeqWithReplacement) {
  ProveTrees("k-seq", "with replacement", Shapes(Children::kWithReplacement));
}
TEST(ExactTest, SampledFirst) {
  ProveTrees("sampled-first", "certain first", Shapes(Children::kCertainFirst));
}
TEST(ExactTest, TraversalOfDrawnTrees) {
  std::vector<TreeShape> shapes = Shapes(Children::kWithoutReplacement);
  shapes.push_back(Shape(3, 2, Children::kWithoutReplacement, 0.5));
  ProveTrees("traversal", "drawn trees", shapes);
}
TEST(ExactTest, WalkOfDrawnTrees) {
  for (const Children children : {Children::kWithoutReplacement, Children::kWithReplacement,
                                  Children::kMixed, Children::kCertainFirst, Children::kPicked}) {
    ProveTrees("walk", "drawn trees", {Shape(2, 2, children), Shape(3, 1, children)});
  }
}

TEST(ExactTest, DrawnTreesWhoseRowsDependOnTheirHistory) {
  Largest largest("rrs, k-seq, sampled-first, traversal, history");
  const std::pair<const char*, Children> kRules[] = {
      {"rrs", Children::kWithoutReplacement}, {"rrs", Children::kWithReplacement},
      {"rrs", Children::kMixed},              {"k-seq", Children::kWithReplacement},
      {"sampled-first", Children::kCertainFirst}, {"traversal", Children::kWithoutReplacement}};
  int setting = 0;
  for (const SamplingOptions& options : Settings()) {
    for (const auto& [rule, children] : kRules) {
      for (uint64_t seed = 1; seed <= 2; ++seed) {
        largest.Add(DrawnTreeDeviation(rule, WarpedRows(seed, options),
                                       WarpedRows(seed + 50, options),
                                       WarpedRows(seed + 90, options), Shape(2, 2, children)),
                    std::string(rule) + ", setting " + std::to_string(setting));
      }
    }
    ++setting;
  }
}

double MeanTreeLength(const char* rule, uint64_t seed, const TreeShape& shape) {
  const Law law = RoundLaw(RuleNamed(rule), HashedRows(seed), [&](Randomness& randomness) {
    return DrawTree(HashedRows(seed + 1000), shape, randomness, kPosition);
  });
  return MeanTokens(law);
}

// One candidate more never accepts less; from the leaves no less than from the root; a chain gives
// block, depth 1 gives rrs.
TEST(ExactTest, TraversalIsNotShorterThanRrs) {
  constexpr Children kDrawn = Children::kWithoutReplacement;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    EXPECT_GE(MeanTreeLength("traversal", seed, Shape(2, 2, kDrawn)),
              MeanTreeLength("rrs", seed, Shape(2, 2, kDrawn)) - kExact);
    EXPECT_NEAR(MeanTreeLength("traversal", seed, Shape(3, 1, kDrawn)),
                MeanTreeLength("rrs", seed, Shape(3, 1, kDrawn)), kExact);
    EXPECT_NEAR(MeanTreeLength("traversal", seed, Shape(1, 3, kDrawn)),
                MeanLength("block", seed, 3, Draft::kSampled), kExact);
    EXPECT_GE(MeanTreeLength("rrs", seed, Shape(2, 2, kDrawn)),
              MeanTreeLength("rrs", seed, Shape(1, 2, kDrawn)) - kExact);
  }
}

// ---- Coupled: the drafter's draw and the target's share a number, which cannot be branched. The
// closed form gives the law of a round from P(draft = target = x) = 1 / sum_y max(p_y / p_x, q_y / q_x).

TEST(ExactTest, CoupledByClosedForm) {
  Largest largest("coupled, closed form");
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    for (int32_t length = 1; length <= 3; ++length) {
      const Law law =
          testing::CoupledLaw(HashedRows(seed), HashedRows(seed + 1000), length);
      largest.Add(Distance(law, length, HashedRows(seed)), "seed " + std::to_string(seed));
    }
  }
}

// The rule with its real noise follows that law: one fixed experiment for each seed, which a right
// rule fails with probability 1e-4.
TEST(ExactTest, CoupledFollowsTheClosedForm) {
  constexpr int32_t kLength = 2;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::map<Tokens, int64_t> counts;
    for (uint64_t stream = 0; stream < 20'000; ++stream) {
      StreamRandomness randomness({stream, 7}, DrawMethod::kGumbel);
      Proposal<double> proposal;
      for (int32_t i = 0; i < kLength; ++i) {
        Row row = HashedRows(seed + 1000)(proposal.tree.tokens);
        const NoiseAddress shared{kPosition + i, Purpose::kToken};
        proposal.tree.Add(i - 1, row.IdAt(randomness.Draw(shared, row.probs(), row.ids()).index));
        proposal.draft_rows.push_back(ProposalDist<double>::Sampled(std::move(row)));
      }
      PrefixRows<double> rows(proposal.tree, HashedRows(seed));
      const auto outcome = RuleNamed("coupled")({proposal, rows, randomness, kPosition});
      ASSERT_THAT(outcome, IsOk());
      ++counts[Emitted(proposal.tree, *outcome)];
    }
    Law law = testing::CoupledLaw(HashedRows(seed), HashedRows(seed + 1000), kLength);
    std::erase_if(law, [](const auto& entry) { return entry.second < 1e-13; });
    EXPECT_GE(testing::ChiSquareTest(counts, law).p_value, 1e-4) << "seed " << seed;
  }
}

TEST(ExactTest, CoupledLiesBetweenItsBounds) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Row target = HashedRows(seed)({});
    const Row draft = HashedRows(seed + 1000)({});
    const double distance = target.DivergenceFrom(draft).total_variation;
    const double acceptance = testing::CoupledAcceptance(target, draft);
    EXPECT_LE(acceptance, 1 - distance + kExact);
    EXPECT_GE(acceptance, (1 - distance) / (1 + distance) - kExact);
  }
}

// A tree of random shape with distinct siblings, a function of the prefix only.
TokenTree RandomTree(uint64_t seed) {
  TokenTree tree;
  for (uint32_t i = 0; i < 7; ++i) {
    const auto parent = static_cast<int32_t>(Noise(seed, 2 * i) * (tree.size() + 1)) - 1;
    const auto token = static_cast<int32_t>(Noise(seed, 2 * i + 1) * kVocabulary);
    const NodeList siblings = tree.Children(parent);
    const bool taken = std::any_of(siblings.begin(), siblings.end(),
                                   [&](int32_t node) { return tree.tokens[node] == token; });
    if (!taken && tree.Depth(parent) < 3) tree.Add(parent, token);
  }
  return tree;
}

double TreeDeviation(const char* rule, const RowOf<double>& rows, const RowOf<double>& target,
                     const TokenTree& tree) {
  const Law law = RoundLaw(RuleNamed(rule), rows,
                           [&](Randomness&) { return Proposal<double>::Deterministic(tree); });
  return Distance(law, tree.MaxDepth(), target);
}

TEST(ExactTest, MatchOnTrees) {
  Largest largest("match, trees");
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    largest.Add(TreeDeviation("match", HashedRows(seed), HashedRows(seed), RandomTree(seed + 7)),
                "seed " + std::to_string(seed));
  }
}

TEST(ExactTest, MatchOnTreesWhoseRowsDependOnTheirHistory) {
  Largest largest("match, trees, history stages");
  for (const SamplingOptions& options : Settings()) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const RowOf<double> target = WarpedRows(seed, options);
      largest.Add(TreeDeviation("match", target, target, RandomTree(seed + 7)),
                  "seed " + std::to_string(seed));
    }
  }
}

TEST(ExactTest, GreedyIsTheTargetsArgmaxPath) {
  Largest largest("greedy, chains and trees");
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const RowOf<double> rows = HashedRows(seed);
    const RowOf<double> target = [&](const Tokens& prefix) {
      return Row::OneHot(rows(prefix).Argmax(), kVocabulary);
    };
    largest.Add(TreeDeviation("greedy", rows, target, RandomTree(seed)),
                "tree, seed " + std::to_string(seed));
    for (int32_t length = 0; length <= 3; ++length) {
      for (Draft kind : {Draft::kSampled, Draft::kDeterministic, Draft::kMixed}) {
        const Law law = RoundLaw(RuleNamed("greedy"), rows, [&](Randomness& randomness) {
          return DrawChain(HashedRows(seed + 500), length, kind, randomness);
        });
        largest.Add(Distance(law, length, target),
                    "chain of " + std::to_string(length) + ", seed " + std::to_string(seed));
      }
    }
  }
}

// ---- Wrong on purpose: the harness must tell each from the right law.

// Draws a refused position from p instead of the residual.
absl::StatusOr<VerifyOutcome> WithoutResidual(const RuleInput<double>& input) {
  VerifyOutcome outcome;
  const TokenTree& tree = input.proposal.tree;
  for (int32_t i = 0; i <= tree.size(); ++i) {
    const Row& row = **input.rows.Row(i - 1);
    const double draft_prob =
        i < tree.size() ? input.proposal.RowOf(i - 1).row().Prob(tree.tokens[i]) : 0;
    const NoiseAddress coin{kPosition + i, Purpose::kAccept, static_cast<uint8_t>(i)};
    if (i < tree.size() &&
        input.randomness.Coin(coin, row.Prob(tree.tokens[i]), draft_prob).accepted) {
      outcome.path.push_back(i);
      continue;
    }
    const NoiseAddress noise{kPosition + i};
    outcome.next_token = row.IdAt(input.randomness.Draw(noise, row.probs(), row.ids()).index);
    return outcome;
  }
  return outcome;
}

TEST(ExactTest, RuleWithoutAResidualIsCaught) {
  EXPECT_GT(Deviation(WithoutResidual, HashedRows(3), HashedRows(4), 2, Draft::kSampled), kCaught);
}

TEST(ExactTest, RowThatWasNotDrawnFromIsCaught) {
  const RowOf<double> target = HashedRows(21);
  const Law law = RoundLaw(RuleNamed("standard"), target, [&](Randomness& randomness) {
    Proposal<double> proposal = DrawChain(HashedRows(22), 1, Draft::kSampled, randomness);
    // Handed over: the drawn-from row, flattened after the draw.
    std::vector<double> flat = proposal.draft_rows[0].row().Dense();
    for (double& prob : flat) prob = (prob + 0.25) / 2;
    proposal.draft_rows[0] = ProposalDist<double>::Sampled(testing::MakeRow<double>(flat));
    return proposal;
  });
  EXPECT_GT(Distance(law, 1, target), kCaught);
}

TEST(ExactTest, SoftRowOfAnArgmaxDraftIsCaught) {
  const RowOf<double> target = [](const Tokens&) {
    return testing::MakeRow<double>({0.25, 0.25, 0.25, 0.25});
  };
  const Law law = RoundLaw(RuleNamed("standard"), target, [&](Randomness&) {
    Proposal<double> proposal;
    Row row = testing::MakeRow<double>({0.4, 0.3, 0.2, 0.1});
    proposal.tree.Add(-1, row.Argmax());
    proposal.draft_rows.push_back(ProposalDist<double>::Sampled(std::move(row)));
    return proposal;
  });
  EXPECT_GT(Distance(law, 1, target), kCaught);
}

// ---- The float instance against the law of float64 logits.

constexpr double kFloatBias = 1e-6;

// Softmax of logits that both precisions hold exactly.
template <typename Real>
RowOf<Real> SoftmaxRows(uint64_t seed) {
  return [seed](const Tokens& prefix) {
    std::vector<float> logits;
    for (uint32_t id = 0; id < kVocabulary; ++id) {
      logits.push_back(static_cast<float>(6 * Noise(HashOf(seed, prefix), id)));
    }
    auto pipeline = Pipeline<Real>::Create({}, kVocabulary);
    return *pipeline->Apply(std::span<const float>(logits), {});
  };
}

// What float32 rows and sums cost, rule by rule: the total variation of the first tokens from the
// law of the same logits in float64.
TEST(Float32Test, RulesAreAsFarFromTheLawAsTheirRowsAreRounded) {
  const auto chain = [](const RowOf<float>& draft, Randomness& randomness) {
    return DrawChain(draft, 3, Draft::kSampled, randomness);
  };
  const auto tree = [](const RowOf<float>& draft, Randomness& randomness) {
    return TreeDrawer<float>(draft, draft, Shape(2, 2, Children::kWithoutReplacement), kPosition,
                             randomness)
        .Draw();
  };
  const auto prove = [](const Rule& rule, const char* shape, int32_t depth, auto propose) {
    double largest = 0;
    for (uint64_t seed = 1; seed <= (testing::kSanitized ? 1 : 4); ++seed) {
      const RowOf<float> draft = SoftmaxRows<float>(seed + 500);
      const Law law = RoundLaw(rule.verify, SoftmaxRows<float>(seed), [&](Randomness& randomness) {
        return propose(draft, randomness);
      });
      // The rows that follow are float64: what is measured is the round.
      largest = std::max(largest, Distance(law, depth, SoftmaxRows<double>(seed)));
    }
    std::printf("[float32] %-13s %-5s largest total variation %.2g\n", rule.name.data(), shape, largest);
    EXPECT_LE(largest, kFloatBias) << rule.name;
    EXPECT_GT(largest, 1e-12) << rule.name << ": not the float instance";
  };
  for (const Rule& rule : Rules()) {
    // `coupled` draws with Gumbel noise, `greedy` draws nothing.
    if (!rule.lossless || rule.name == "coupled" || rule.name == "greedy") continue;
    prove(rule, "chain", 3, chain);
    const bool takes = rule.trees && rule.name != "k-seq" && rule.name != "sampled-first";
    if (takes) prove(rule, "tree", 2, tree);
  }
}

TEST(ExactTest, DroppingADrawnTokenForItsLowProbabilityIsCaught) {
  const RowOf<double> target = HashedRows(41);
  const Law law = RoundLaw(RuleNamed("standard"), target, [&](Randomness& randomness) {
    const Row row = testing::MakeRow<double>({0.1, 0.2, 0.3, 0.4});
    Proposal<double> proposal =
        DrawChain(RowOf<double>([&](const Tokens&) { return row; }), 1, Draft::kSampled, randomness);
    return row.Prob(proposal.tree.tokens[0]) < 0.25 ? Proposal<double>() : proposal;
  });
  EXPECT_GT(Distance(law, 1, target), kCaught);
}

}  // namespace
}  // namespace paceline
