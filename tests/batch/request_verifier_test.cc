#include "batch/request_verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "tests/support/allocations.h"
#include "tests/support/status_matchers.h"
#include "verify/given_rows.h"

namespace paceline {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using Ids = std::vector<int64_t>;

constexpr int32_t kVocab = 50;

// `count` rows of kVocab logits.
template <typename Real>
std::vector<Real> Logits(int64_t count, uint64_t seed) {
  std::vector<Real> logits;
  for (int64_t i = 0; i < count * kVocab; ++i) {
    const double u = Uniform({seed, 0}, {static_cast<uint32_t>(i)});
    logits.push_back(static_cast<Real>(6 * u));
  }
  return logits;
}

template <typename Real>
RowSpan<Real> RowsOf(const std::vector<Real>& rows, int64_t width = kVocab) {
  return {rows.data(), static_cast<int64_t>(rows.size()) / width, width};
}

IdSpan SpanOf(const Ids& ids) { return {ids.data(), static_cast<int64_t>(ids.size())}; }

// A tree of random tokens and probabilities, in every layout that there is.
template <typename Real>
struct Drafted {
  Ids tokens;
  Ids parents;
  Ids linked_tokens, first_child, next_sibling;
  std::vector<Real> probs;   // [n + 1, V]
  std::vector<Real> target;  // Logits [n + 1, V].

  DraftedTokens Chain() const { return {SpanOf(tokens), {}, {}, {}}; }
  DraftedTokens Parents() const { return {SpanOf(tokens), SpanOf(parents), {}, {}}; }
  DraftedTokens Linked() const {
    return {SpanOf(linked_tokens), {}, SpanOf(first_child), SpanOf(next_sibling)};
  }
};

// Probabilities of a row, zero for every token but some.
template <typename Real>
std::vector<Real> Probs(const std::vector<Real>& logits, int32_t top_k) {
  SamplingOptions options;
  options.top_k = top_k;
  auto pipeline = Pipeline<Real>::Create(options, kVocab);
  std::vector<Real> probs;
  for (size_t first = 0; first < logits.size(); first += kVocab) {
    const auto row = pipeline->Apply(std::span(logits).subspan(first, kVocab), {});
    const std::vector<Real> dense = row->Dense();
    probs.insert(probs.end(), dense.begin(), dense.end());
  }
  return probs;
}

// Children come without replacement from the row of their node, as rules expect.
template <typename Real>
Drafted<Real> DraftTree(const Ids& parents, uint64_t seed) {
  const auto n = static_cast<int64_t>(parents.size());
  Drafted<Real> drafted;
  drafted.parents = parents;
  drafted.target = Logits<Real>(n + 1, seed);
  std::vector<Real> draft_logits = drafted.target;
  const std::vector<Real> noise = Logits<Real>(n + 1, seed + 1000);
  for (size_t i = 0; i < noise.size(); ++i) draft_logits[i] += noise[i] / 4;
  drafted.probs = Probs(draft_logits, 12);
  drafted.first_child.assign(n + 1, -1);
  drafted.next_sibling.assign(n + 1, -1);
  Ids last_child(n + 1, -1);
  auto left = drafted.probs;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t parent = parents[i] + 1;
    const std::span<Real> row = std::span(left).subspan(parent * kVocab, kVocab);
    const double u = Uniform({seed, 1}, {static_cast<uint32_t>(i), Purpose::kDraft});
    drafted.tokens.push_back(InverseCdf(row, u));
    row[drafted.tokens.back()] = 0;
    (last_child[parent] < 0 ? drafted.first_child[parent]
                            : drafted.next_sibling[last_child[parent]]) = i + 1;
    last_child[parent] = i + 1;
  }
  drafted.linked_tokens = drafted.tokens;
  drafted.linked_tokens.insert(drafted.linked_tokens.begin(), 7);
  return drafted;
}

const Ids kChain = {-1, 0, 1, 2};
const Ids kTree = {-1, -1, 0, 0, 1, 2, 2};  // Breadth first, as linked trees are numbered.

SamplingOptions Warped() {
  SamplingOptions options;
  options.temperature = 0.9;
  options.top_k = 20;
  options.top_p = 0.95;
  options.min_p = 0.01;
  return options;
}

template <typename Real>
VerifyRequest<Real> RequestOf(const Drafted<Real>& drafted, const DraftedTokens& tokens,
                              const SamplingOptions& sampling, uint64_t seed, bool sampled) {
  VerifyRequest<Real> request;
  request.drafted = tokens;
  request.target = RowsOf(drafted.target);
  request.sampling = &sampling;
  request.key = {{seed, 3}, 17};
  if (!sampled) return request;
  const bool chain = tokens.parents.empty() && tokens.first_child.empty();
  request.draft = RowsOf(drafted.probs);
  if (chain) request.draft = request.draft.Part(0, tokens.tokens.size());
  return request;
}

// What a rule does with the same proposal and rows, without the arrays.
template <typename Real>
VerifyOutcome Direct(const Drafted<Real>& drafted, const SamplingOptions& sampling, uint64_t seed,
                     const Rule& rule, bool sampled) {
  auto pipeline = Pipeline<Real>::Create(sampling, kVocab);
  std::vector<Distribution<Real>> rows;
  Proposal<Real> proposal;
  const auto row_of = [](const std::vector<Real>& all, int64_t i) {
    return std::span(all).subspan(i * kVocab, kVocab);
  };
  for (size_t i = 0; i <= drafted.tokens.size(); ++i) {
    rows.push_back(*pipeline->Apply(row_of(drafted.target, i), {}));
  }
  for (size_t i = 0; i < drafted.tokens.size(); ++i) {
    proposal.tree.Add(static_cast<int32_t>(drafted.parents[i]),
                      static_cast<int32_t>(drafted.tokens[i]));
  }
  for (int32_t node = -1; node < proposal.tree.size(); ++node) {
    if (!proposal.tree.HasChildren(node)) continue;
    proposal.draft_rows.push_back(sampled
                                      ? ProposalDist<Real>::Sampled(*Distribution<Real>::FromProbs(
                                            row_of(drafted.probs, node + 1)))
                                      : ProposalDist<Real>::Deterministic());
  }
  GivenRows<Real> given(std::move(rows));
  StreamRandomness randomness({seed, 3}, DrawMethodOf(rule, sampling));
  const auto outcome = VerifyBy(rule, {proposal, given, randomness, 17});
  EXPECT_THAT(outcome, IsOk()) << rule.name;
  return *outcome;
}

bool TakesPicked(const Rule& rule, bool tree) {
  if (rule.name == "rrs" || rule.name == "k-seq" || rule.name == "sampled-first") return false;
  return !(tree && rule.name == "traversal");
}

template <typename Real>
class RequestVerifierTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(RequestVerifierTest, Reals);

// Calls check(rule, sampled, tree) for every rule and form of draft that it takes.
template <typename Check>
void ForEachForm(Check check) {
  for (const Rule& rule : Rules()) {
    for (const bool tree : {false, true}) {
      for (const bool sampled : {false, true}) {
        if (tree && !rule.trees) continue;
        if (!sampled && !TakesPicked(rule, tree)) continue;
        // These two take candidates of other kinds than siblings without replacement.
        if (tree && (rule.name == "k-seq" || rule.name == "sampled-first")) continue;
        SCOPED_TRACE(absl::StrCat(std::string(rule.name), sampled ? " drawn " : " picked ",
                                  tree ? "tree" : "chain"));
        check(rule, sampled, tree);
      }
    }
  }
}

TYPED_TEST(RequestVerifierTest, DecidesAsTheRuleDoesInEveryLayout) {
  RequestVerifier<TypeParam> verifier;
  const SamplingOptions sampling = Warped();
  ForEachForm([&](const Rule& rule, bool sampled, bool tree) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto drafted = DraftTree<TypeParam>(tree ? kTree : kChain, seed);
      const VerifyOutcome expected = Direct(drafted, sampling, seed, rule, sampled);
      std::vector<DraftedTokens> layouts = {drafted.Parents(), drafted.Linked()};
      if (!tree) layouts.push_back(drafted.Chain());
      for (const DraftedTokens& layout : layouts) {
        const auto outcome =
            verifier.Verify(RequestOf(drafted, layout, sampling, seed, sampled), rule, {});
        ASSERT_THAT(outcome, IsOk());
        EXPECT_EQ((*outcome)->path, expected.path);
        EXPECT_EQ((*outcome)->next_token, expected.next_token);
        const bool linked = !layout.first_child.empty();
        for (const int32_t node : (*outcome)->path) {
          EXPECT_EQ(verifier.tree().NumberOf(node), linked ? node + 1 : node);
        }
      }
    }
  });
}

// Siblings may be linked in any order of the array, and entries that nothing leads to be anything.
TYPED_TEST(RequestVerifierTest, LinkedTreesAreReadAlongTheirLinks) {
  const auto drafted = DraftTree<TypeParam>({-1, -1, 0}, 5);
  // Entries in another order: 3 and 1 are the root's children, 4 the child of 3; 2 is padding.
  const auto entry = [](int64_t node) { return node == 0 ? 3 : node == 1 ? 1 : 4; };
  Ids tokens(5, 49), first_child(5, -1), next_sibling(5, -1);
  std::vector<TypeParam> target(5 * kVocab, 0);
  const auto copy = [&](int64_t from, int64_t to) {
    std::copy_n(drafted.target.begin() + from * kVocab, kVocab, target.begin() + to * kVocab);
  };
  copy(0, 0);
  for (int64_t node = 0; node < 3; ++node) {
    tokens[entry(node)] = drafted.tokens[node];
    copy(node + 1, entry(node));
  }
  first_child[0] = 3;
  next_sibling[3] = 1;
  first_child[3] = 4;
  first_child[2] = 400;
  const Rule& walk = **FindRule("walk");
  const SamplingOptions sampling;
  RequestVerifier<TypeParam> verifier;
  int64_t accepted = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    VerifyRequest<TypeParam> request;
    request.drafted = {SpanOf(tokens), {}, SpanOf(first_child), SpanOf(next_sibling)};
    request.target = RowsOf(target);
    request.sampling = &sampling;
    request.key = {{seed, 3}, 17};
    const auto outcome = verifier.Verify(request, walk, {});
    ASSERT_THAT(outcome, IsOk());
    const VerifyOutcome expected = Direct(drafted, sampling, seed, walk, false);
    EXPECT_EQ((*outcome)->next_token, expected.next_token);
    ASSERT_EQ((*outcome)->path.size(), expected.path.size());
    for (size_t i = 0; i < expected.path.size(); ++i) {
      EXPECT_EQ(verifier.tree().NumberOf((*outcome)->path[i]), entry(expected.path[i]));
    }
    accepted += static_cast<int64_t>(expected.path.size());
  }
  EXPECT_GT(accepted, 10);
}

TYPED_TEST(RequestVerifierTest, PaddingEndsAChain) {
  const auto drafted = DraftTree<TypeParam>(kChain, 11);
  const Rule& standard = **FindRule("standard");
  const SamplingOptions sampling = Warped();
  RequestVerifier<TypeParam> verifier;
  for (int64_t kept = 0; kept < 4; ++kept) {
    Ids padded = drafted.tokens;
    std::fill(padded.begin() + kept, padded.end(), -1);
    const Ids cut(padded.begin(), padded.begin() + kept);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto request = RequestOf(drafted, {SpanOf(padded), {}, {}, {}}, sampling, seed, true);
      const auto outcome = verifier.Verify(request, standard, {});
      ASSERT_THAT(outcome, IsOk());
      const VerifyOutcome with_padding = **outcome;
      request.drafted.tokens = SpanOf(cut);
      request.target = RowsOf(drafted.target).Part(0, kept + 1);
      request.draft = RowsOf(drafted.probs).Part(0, kept);
      const auto alone = verifier.Verify(request, standard, {});
      ASSERT_THAT(alone, IsOk());
      EXPECT_EQ((*alone)->path, with_padding.path);
      EXPECT_EQ((*alone)->next_token, with_padding.next_token);
    }
  }
}

TYPED_TEST(RequestVerifierTest, SparseRowsAreDenseOnes) {
  constexpr int64_t kWidth = 14;  // Two more than tokens with a probability.
  const SamplingOptions sampling = Warped();
  RequestVerifier<TypeParam> verifier;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto drafted = DraftTree<TypeParam>(kChain, seed);
    // In descending order of ids: any order will do.
    Ids ids;
    std::vector<TypeParam> probs;
    for (size_t row = 0; row < 4; ++row) {
      for (int32_t id = kVocab - 1; id >= 0; --id) {
        const TypeParam prob = drafted.probs[row * kVocab + id];
        if (prob == 0) continue;
        ids.push_back(id);
        probs.push_back(prob);
      }
      ids.resize((row + 1) * kWidth, -1);
      probs.resize((row + 1) * kWidth, 9);
    }
    for (const char* name : {"standard", "block"}) {
      const Rule& rule = **FindRule(name);
      auto request = RequestOf(drafted, drafted.Chain(), sampling, seed, true);
      const auto outcome = verifier.Verify(request, rule, {});
      ASSERT_THAT(outcome, IsOk());
      const VerifyOutcome dense = **outcome;
      request.draft = RowsOf(probs, kWidth);
      request.draft_ids = SpanOf(ids);
      const auto sparse = verifier.Verify(request, rule, {});
      ASSERT_THAT(sparse, IsOk());
      EXPECT_EQ((*sparse)->path, dense.path);
      EXPECT_EQ((*sparse)->next_token, dense.next_token);
    }
  }
}

TYPED_TEST(RequestVerifierTest, ProbabilitiesAreTakenAsTheyAre) {
  const SamplingOptions plain;
  const Rule& standard = **FindRule("standard");
  RequestVerifier<TypeParam> verifier;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    auto drafted = DraftTree<TypeParam>(kChain, seed);
    auto request = RequestOf(drafted, drafted.Chain(), plain, seed, true);
    const auto outcome = verifier.Verify(request, standard, {});
    ASSERT_THAT(outcome, IsOk());
    const VerifyOutcome of_logits = **outcome;
    const std::vector<TypeParam> probs = Probs(drafted.target, 0);
    request.target = RowsOf(probs);
    request.logits = false;
    const auto of_probs = verifier.Verify(request, standard, {});
    ASSERT_THAT(of_probs, IsOk());
    EXPECT_EQ((*of_probs)->path, of_logits.path);
    EXPECT_EQ((*of_probs)->next_token, of_logits.next_token);
  }
}

TYPED_TEST(RequestVerifierTest, AllocatesNothingOnceItHasItsMemory) {
  constexpr uint64_t kSeeds = 40;
  std::vector<SamplingOptions> settings(4);
  settings[1] = Warped();
  settings[2].temperature = 0;
  settings[3].temperature = 1.5;
  settings[3].ties = Ties::kValue;
  settings[3].top_p = 0.8;
  ForEachForm([&](const Rule& rule, bool sampled, bool tree) {
    std::vector<Drafted<TypeParam>> drafts;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      drafts.push_back(DraftTree<TypeParam>(tree ? kTree : kChain, seed));
    }
    RequestVerifier<TypeParam> verifier;
    const auto run_all = [&] {
      bool ok = true;
      for (uint64_t i = 0; i < kSeeds; ++i) {
        const Drafted<TypeParam>& drafted = drafts[i];
        for (const SamplingOptions& sampling : settings) {
          for (const DraftedTokens& layout : {drafted.Parents(), drafted.Linked()}) {
            ok &= verifier.Verify(RequestOf(drafted, layout, sampling, i, sampled), rule, {}).ok();
          }
        }
      }
      return ok;
    };
    // The largest round of all decides how much memory is enough.
    for (int round = 0; round < 3; ++round) ASSERT_TRUE(run_all());
    RequestVerifier<TypeParam> first;
    const auto fresh = RequestOf(drafts[0], drafts[0].Parents(), settings[0], 0, sampled);
    EXPECT_GT(
        testing::CountAllocations([&] { EXPECT_THAT(first.Verify(fresh, rule, {}), IsOk()); }), 0);
    bool ok = false;
    EXPECT_EQ(testing::CountAllocations([&] { ok = run_all(); }), 0);
    EXPECT_TRUE(ok);
  });
}

// --- What is refused ---

class RefusalTest : public ::testing::Test {
 protected:
  RefusalTest() : drafted_(DraftTree<double>(kTree, 1)), chain_(DraftTree<double>(kChain, 1)) {}

  absl::Status Run(const VerifyRequest<double>& request, const char* rule = "walk") {
    return verifier_.Verify(request, **FindRule(rule), {}).status();
  }
  VerifyRequest<double> Chain() { return RequestOf(chain_, chain_.Chain(), sampling_, 1, true); }
  VerifyRequest<double> Linked() {
    return RequestOf(drafted_, drafted_.Linked(), sampling_, 1, false);
  }

  static auto Refuses(const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  }

  RequestVerifier<double> verifier_;
  SamplingOptions sampling_;
  Drafted<double> drafted_;
  Drafted<double> chain_;
};

TEST_F(RefusalTest, Tokens) {
  chain_.tokens[2] = kVocab;
  EXPECT_THAT(Run(Chain()), Refuses("draft_tokens[2]: expected an id in [0, 50) or -1, got 50"));
  chain_.tokens[2] = -7;
  EXPECT_THAT(Run(Chain()), Refuses("draft_tokens[2]: expected an id in [0, 50) or -1, got -7"));
  chain_.tokens[2] = -1;
  EXPECT_THAT(Run(Chain()), Refuses("draft_tokens[3]: expected -1 behind padding"));
  chain_.tokens[2] = (int64_t{1} << 32) + 3;
  EXPECT_THAT(Run(Chain()), Refuses("draft_tokens[2]: expected an id in [0, 50) or -1"));
}

TEST_F(RefusalTest, Parents) {
  const auto with_parents = [&](Ids parents) {
    drafted_.parents = std::move(parents);
    return Run(RequestOf(drafted_, drafted_.Parents(), sampling_, 1, false));
  };
  EXPECT_THAT(with_parents({-1, 1, 0, 0, 1, 2, 2}),
              Refuses("parents[1]: expected -1 or an earlier node, got 1"));
  EXPECT_THAT(with_parents({-2, -1, 0, 0, 1, 2, 2}), Refuses("parents[0]"));
  EXPECT_THAT(with_parents({-1, -1}), Refuses("parents: expected 7 entries"));
  drafted_.tokens[1] = drafted_.tokens[0];
  EXPECT_THAT(with_parents({-1, -1, 0, 0, 1, 2, 2}), Refuses("expected siblings to differ"));
}

// The address of a coin has room for 255 places: a later one would share the number of another
// round.
TEST_F(RefusalTest, DraftsTooLongToHaveTheirOwnNoise) {
  const auto with_length = [&](int64_t length) {
    chain_.tokens.assign(length, 3);
    chain_.target = Logits<double>(length + 1, 4);
    return Run(RequestOf(chain_, chain_.Chain(), sampling_, 1, false));
  };
  EXPECT_THAT(with_length(255), IsOk());
  EXPECT_THAT(with_length(256),
              Refuses("draft_tokens: expected at most 255 behind one another, got 256"));
  EXPECT_THAT(with_length(5000), Refuses("draft_tokens: expected at most 4096"));
}

TEST_F(RefusalTest, LinksThatLeadNowhereOrBack) {
  const Drafted<double> sound = drafted_;
  drafted_.next_sibling[2] = 1;
  EXPECT_THAT(Run(Linked()),
              Refuses("next_sibling[2]: expected an entry that nothing else leads to, got 1"));
  drafted_ = sound;
  drafted_.first_child[7] = 1;
  EXPECT_THAT(Run(Linked()), Refuses("first_child[7]: expected an entry that nothing else"));
  drafted_ = sound;
  drafted_.first_child[3] = 0;
  EXPECT_THAT(Run(Linked()), Refuses("first_child[3]: expected -1 or an entry in [1, 8), got 0"));
  drafted_ = sound;
  drafted_.first_child[0] = 8;
  EXPECT_THAT(Run(Linked()), Refuses("first_child[0]: expected -1 or an entry in [1, 8), got 8"));
  drafted_ = sound;
  drafted_.next_sibling.pop_back();
  EXPECT_THAT(Run(Linked()), Refuses("first_child, next_sibling: expected 8 entries each"));
}

TEST_F(RefusalTest, Rows) {
  auto request = Chain();
  request.target = request.target.Part(0, 4);
  EXPECT_THAT(Run(request),
              Refuses("target: expected 5 rows, one more than drafted tokens, got 4"));
  request = Chain();
  request.draft = request.draft.Part(0, 3);
  EXPECT_THAT(Run(request), Refuses("draft: expected 4 rows, got 3"));
  request = Chain();
  request.draft.width = 25;
  EXPECT_THAT(Run(request), Refuses("draft: expected rows of 50 entries, as target, got 25"));
  chain_.probs[2 * kVocab + 3] += 0.5;
  EXPECT_THAT(Run(Chain()), Refuses("draft[2]: probs: expected a sum of 1"));
  chain_ = DraftTree<double>(kChain, 1);
  chain_.target[kVocab + 9] = std::numeric_limits<double>::quiet_NaN();
  for (uint64_t seed = 0;; ++seed) {
    ASSERT_LT(seed, 100) << "no round came to the second row";
    auto late = Chain();
    late.key.stream.seed = seed;
    const absl::Status status = Run(late, "standard");
    if (status.ok()) continue;
    EXPECT_THAT(status, Refuses("target[1]: "));
    EXPECT_THAT(status, Refuses("9"));
    break;
  }
}

TEST_F(RefusalTest, SparseRows) {
  auto request = Chain();
  Ids ids = {0, 1, 2, 3, 4, 5, 6, 6};
  std::vector<double> probs(8, 0.5);
  request.draft = {probs.data(), 4, 2};
  request.draft_ids = SpanOf(ids);
  EXPECT_THAT(Run(request), Refuses("draft[3]: ids[1]: expected an id in [7, 50)"));
  ids[1] = 60;
  EXPECT_THAT(Run(request), Refuses("draft[0]: draft_ids[1]: expected -1 or an id in [0, 50)"));
  request.draft_ids = request.draft_ids.Part(0, 7);
  EXPECT_THAT(Run(request), Refuses("draft_ids: expected 8, as draft, got 7"));
}

// A stage that is added must be looked at: does it need more than its row, and is it then refused?
TEST_F(RefusalTest, EveryStageIsKnownToNeedItsRowAloneOrIsRefused) {
  const std::set<std::string_view> row_alone = {
      "logit_bias", "temperature", "top_n_sigma", "top_k",          "top_p",     "min_p",
      "typical_p",  "top_h",       "xtc",         "epsilon_cutoff", "eta_cutoff"};
  // By an option of theirs in SettingsThatNeedMoreThanRows; allowed_ids of `mask` need no more.
  const std::set<std::string_view> refused = {"guidance",        "mask", "penalties",
                                              "no_repeat_ngram", "dry",  "mirostat2"};
  for (const Stage<double>& stage : AllStages<double>()) {
    EXPECT_EQ(row_alone.count(stage.name) + refused.count(stage.name), 1u) << stage.name;
  }
}

TEST_F(RefusalTest, SettingsThatNeedMoreThanRows) {
  const auto refused = [&](auto set) {
    sampling_ = {};
    set(sampling_);
    return Run(Chain());
  };
  const auto unbuilt = [](const std::string& option) {
    return StatusIs(absl::StatusCode::kUnimplemented, HasSubstr(option + ": expected off"));
  };
  EXPECT_THAT(refused([](auto& o) { o.guidance_scale = 2; }), unbuilt("guidance_scale"));
  EXPECT_THAT(refused([](auto& o) { o.bad_words = {{1, 2}}; }), unbuilt("bad_words"));
  EXPECT_THAT(refused([](auto& o) { o.min_tokens = 2; }), unbuilt("min_tokens"));
  EXPECT_THAT(refused([](auto& o) { o.repetition_penalty = 2; }), unbuilt("repetition_penalty"));
  EXPECT_THAT(refused([](auto& o) { o.frequency_penalty = 2; }), unbuilt("frequency_penalty"));
  EXPECT_THAT(refused([](auto& o) { o.presence_penalty = 2; }), unbuilt("presence_penalty"));
  EXPECT_THAT(refused([](auto& o) { o.no_repeat_ngram_size = 2; }),
              unbuilt("no_repeat_ngram_size"));
  EXPECT_THAT(refused([](auto& o) { o.dry_multiplier = 2; }), unbuilt("dry_multiplier"));
  EXPECT_THAT(refused([](auto& o) { o.mirostat_tau = 2; }), unbuilt("mirostat_tau"));
  EXPECT_THAT(refused([](auto& o) { o.top_p = 2; }), Refuses("top_p"));
}

}  // namespace
}  // namespace paceline
