// Every recorded case of sampling.json whose stage is built, on the float and the double instance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "sampling/draw.h"
#include "sampling/mirostat2.h"
#include "sampling/pipeline.h"
#include "tests/sampling/pipeline_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace paceline {
namespace {

using testing::History;
using testing::IsOk;
using testing::Number;
using testing::Numbers;
using testing::ReadJson;
using testing::StatusIs;
using testing::Tokens;
using Json = nlohmann::json;

// Cases of stages that are not built, by the start of their names. A case that is neither named
// here nor understood below fails.
constexpr const char* kNotBuilt[] = {"grammar/"};
// Run by tests/base/philox_test.cc.
constexpr const char* kInBase[] = {"philox/", "stream/"};

constexpr int kCases = 153;
constexpr int kCasesNotBuilt = 1;
constexpr int kCasesInBase = 11;

template <size_t kSize>
bool StartsWithAny(const std::string& name, const char* const (&prefixes)[kSize]) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](const char* prefix) { return name.starts_with(prefix); });
}

PenaltyScope ScopeNamed(const std::string& name) {
  static const std::map<std::string, PenaltyScope> kScopes = {
      {"prompt+output", PenaltyScope::kPromptAndOutput},
      {"output", PenaltyScope::kOutput},
      {"last_n", PenaltyScope::kLastN}};
  return kScopes.at(name);
}

// The names of the cases; top_k_first is the default.
void SetOrder(SamplingOptions& options, const std::string& order) {
  if (order == "joint") {
    options.order = {"flashinfer-joint"};
  } else if (order != "top_k_first") {
    options.order = {order};
  }
  if (order == "llama") options.penalty_scope = PenaltyScope::kLastN;
}

void SetOption(SamplingOptions& options, const std::string& name, const Json& value) {
  if (name == "logit_bias") {
    for (const auto& [id, bias] : value.items()) {
      options.logit_bias.emplace_back(std::stoi(id), Number(bias));
    }
  } else if (name == "penalty_scope") {
    options.penalty_scope = ScopeNamed(value);
  } else if (name == "ties") {
    options.ties = value == "value" ? Ties::kValue : Ties::kRank;
  } else if (name == "top_p_compare") {
    options.top_p_compare = value == "le" ? TopPCompare::kLessOrEqual : TopPCompare::kLess;
  } else if (name == "typical_mode") {
    options.typical_mode = value == "llama" ? TypicalMode::kLlama : TypicalMode::kHf;
  } else if (name == "order") {
    SetOrder(options, value);
  } else if (name == "allowed_ids") {
    options.allowed_ids = value.get<std::vector<int32_t>>();
  } else if (name == "bad_words") {
    options.bad_words = value.get<std::vector<std::vector<int32_t>>>();
  } else if (name == "eos_ids") {
    options.eos_ids = value.get<std::vector<int32_t>>();
  } else if (name == "dry_breakers") {
    options.dry_breakers = value.get<std::vector<std::vector<int32_t>>>();
  } else if (name == "xtc_gate") {
    options.xtc_probability = value.get<bool>() ? 1 : 0;
  } else if (name != "stage" && name != "vocab_size") {
    const std::map<std::string, int32_t*> integers = {{"min_tokens", &options.min_tokens},
                                                      {"no_repeat_ngram_size",
                                                       &options.no_repeat_ngram_size},
                                                      {"penalty_last_n", &options.penalty_last_n},
                                                      {"dry_allowed_length",
                                                       &options.dry_allowed_length},
                                                      {"dry_penalty_last_n",
                                                       &options.dry_penalty_last_n},
                                                      {"top_k", &options.top_k},
                                                      {"min_keep", &options.min_keep}};
    const std::map<std::string, double*> reals = {
        {"repetition_penalty", &options.repetition_penalty},
        {"frequency_penalty", &options.frequency_penalty},
        {"presence_penalty", &options.presence_penalty},
        {"temperature", &options.temperature},
        {"dynatemp_range", &options.dynatemp_range},
        {"dynatemp_exponent", &options.dynatemp_exponent},
        {"top_n_sigma", &options.top_n_sigma},
        {"typical_p", &options.typical_p},
        {"epsilon_cutoff", &options.epsilon_cutoff},
        {"eta_cutoff", &options.eta_cutoff},
        {"guidance_scale", &options.guidance_scale},
        {"dry_multiplier", &options.dry_multiplier},
        {"dry_base", &options.dry_base},
        {"top_h", &options.top_h},
        {"xtc_probability", &options.xtc_probability},
        {"xtc_threshold", &options.xtc_threshold},
        {"mirostat_tau", &options.mirostat_tau},
        {"mirostat_eta", &options.mirostat_eta},
        {"top_p", &options.top_p},
        {"min_p", &options.min_p}};
    if (const auto found = integers.find(name); found != integers.end()) {
      *found->second = value.get<int32_t>();
    } else if (const auto real = reals.find(name); real != reals.end()) {
      *real->second = value.get<double>();
    } else {
      ADD_FAILURE() << "option " << name << " is not built";
    }
  }
}

SamplingOptions OptionsOf(const Json& params) {
  SamplingOptions options;
  for (const auto& [name, value] : params.items()) SetOption(options, name, value);
  return options;
}

History HistoryOf(const Json& inputs) {
  const auto tokens = [&](const char* name) { return inputs.value(name, Tokens()); };
  return History(tokens("prompt"), tokens(inputs.contains("tokens") ? "tokens" : "output"),
                 tokens("draft_prefix"));
}

template <typename Real>
std::vector<Real> RowOf(const Json& inputs) {
  if (inputs.contains("logits")) return Numbers<Real>(inputs.at("logits"));
  std::vector<Real> logits;
  for (double prob : Numbers<double>(inputs.at("probs"))) {
    logits.push_back(static_cast<Real>(std::log(prob)));
  }
  return logits;
}

template <typename Real>
class StageCasesTest : public ::testing::Test {
 protected:
  void Run(const Json& test) {
    const Json& params = test.at("params");
    if (params.at("stage") == "draw") {
      RunDraw(test);
    } else if (test.at("expected").contains("error")) {
      RunRefusal(test);
    } else if (test.at("name") == "xtc/mean-over-the-gate") {
      RunMeanOverTheCoin(test);
    } else if (test.at("expected").contains("draws")) {
      RunMirostatPath(test);
    } else {
      RunStages(test);
    }
  }

 private:
  static double Tolerance(const Json& test) {
    const double tolerance = test.at("tolerance");
    return std::is_same_v<Real, float> ? std::max(tolerance, 1e-6) : tolerance;
  }

  absl::StatusOr<Distribution<Real>> Apply(const Json& inputs, const SamplingOptions& options,
                                           int32_t vocab_size) {
    auto pipeline = Pipeline<Real>::Create(options, vocab_size);
    if (!pipeline.ok()) return pipeline.status();
    const History history = HistoryOf(inputs);
    const std::vector<Real> row = RowOf<Real>(inputs);
    RowContext context = history.Context();
    context.mirostat_mu = inputs.value("mu", 0.0);
    const std::vector<float> other = Unconditional(inputs);
    context.unconditional = other;
    return pipeline->Apply(std::span<const Real>(row), context);
  }

  static std::vector<float> Unconditional(const Json& inputs) {
    return inputs.contains("unconditional_logits")
               ? Numbers<float>(inputs.at("unconditional_logits"))
               : std::vector<float>();
  }

  // The law of one draw: the coin's two rows, weighted.
  void RunMeanOverTheCoin(const Json& test) {
    SamplingOptions options = OptionsOf(test.at("params"));
    const double share = options.xtc_probability;
    const auto size = static_cast<int32_t>(RowOf<Real>(test.at("inputs")).size());
    options.xtc_probability = 1;
    const auto without_top = Apply(test.at("inputs"), options, size);
    const auto plain = Apply(test.at("inputs"), SamplingOptions(), size);
    ASSERT_THAT(without_top, IsOk());
    const std::vector<double> expected = Numbers<double>(test.at("expected").at("probs"));
    for (int32_t id = 0; id < size; ++id) {
      EXPECT_NEAR((1 - share) * plain->Prob(id) + share * without_top->Prob(id), expected[id],
                  Tolerance(test));
    }
  }

  // Draws of a forced path: each row is made with the mu that the draws before it left.
  void RunMirostatPath(const Json& test) {
    const SamplingOptions options = OptionsOf(test.at("params"));
    Json inputs = test.at("inputs");
    double mu = FirstMu(options);
    for (const Json& draw : test.at("expected").at("draws")) {
      EXPECT_NEAR(mu, draw.at("mu").template get<double>(), Tolerance(test));
      inputs["mu"] = mu;
      const auto row = Apply(inputs, options, static_cast<int32_t>(RowOf<Real>(inputs).size()));
      ASSERT_THAT(row, IsOk());
      ExpectProbs(*row, Numbers<double>(draw.at("probs")), Tolerance(test));
      const double prob = row->Prob(draw.at("token").template get<int32_t>());
      EXPECT_NEAR(-std::log2(prob), draw.at("surprise").template get<double>(), Tolerance(test));
      mu = NextMu(options, mu, prob);
      EXPECT_NEAR(mu, draw.at("mu_next").template get<double>(), Tolerance(test));
    }
  }

  void RunStages(const Json& test) {
    const Json& inputs = test.at("inputs");
    const SamplingOptions options = OptionsOf(test.at("params"));
    const int32_t width = static_cast<int32_t>(RowOf<Real>(inputs).size());
    const int32_t vocab_size = test.at("params").value("vocab_size", width);
    const auto row = Apply(inputs, options, vocab_size);
    ASSERT_THAT(row, IsOk());
    for (const auto& [field, expected] : test.at("expected").items()) {
      if (field == "probs") {
        ExpectProbs(*row, Numbers<double>(expected), Tolerance(test));
      } else if (field == "rounded") {
        ExpectProbs(*row, Numbers<double>(expected), 5e-4 + Tolerance(test));
      } else if (field == "kept") {
        EXPECT_EQ(Kept(*row), expected.template get<std::set<int32_t>>());
      } else if (field == "logits") {
        ExpectEdited(test, options, Numbers<double>(expected));
      } else if (field == "penalty") {
        std::vector<double> edited = Numbers<double>(inputs.at("logits"));
        for (const auto& [id, penalty] : expected.items()) {
          edited[std::stoi(id)] -= penalty.template get<double>();
        }
        ExpectEdited(test, options, edited);
      } else if (field == "survivors") {
        EXPECT_EQ(row->NumSurvivors(), expected.template get<int64_t>());
      } else if (field == "entropy_bits") {
        EXPECT_NEAR(row->EntropyBits(), expected.template get<double>(), Tolerance(test));
      } else if (field == "max_entropy_bits") {
        EXPECT_NEAR(std::log2(row->vocab_size()), expected.template get<double>(), 1e-12);
      } else if (field == "banned") {
        for (int32_t id = 0; id < width; ++id) {
          const auto banned = expected.template get<std::set<int32_t>>();
          EXPECT_EQ(row->Prob(id) == 0, banned.contains(id)) << "id " << id;
        }
      } else if (field == "temperature") {
        ExpectTemperature(RowOf<Real>(inputs), *row, expected.template get<double>());
      } else if (field == "threshold") {
        const auto plain = Apply(inputs, SamplingOptions(), vocab_size);
        for (int32_t id = 0; id < width; ++id) {
          EXPECT_EQ(row->Prob(id) > 0, plain->Prob(id) >= expected.template get<double>());
        }
      } else if (field == "kept_mass") {
        const auto plain = Apply(inputs, SamplingOptions(), vocab_size);
        double mass = 0;
        for (int32_t id : Kept(*row)) mass += plain->Prob(id);
        EXPECT_NEAR(mass, expected.template get<double>(), Tolerance(test));
      } else {
        ADD_FAILURE() << "expected field " << field << " is not compared";
      }
    }
  }

  // The temperature that makes the odds of the kept tokens out of their logits; 0 keeps one.
  static void ExpectTemperature(const std::vector<Real>& logits, const Distribution<Real>& row,
                                double expected) {
    const std::set<int32_t> kept = Kept(row);
    ASSERT_EQ(expected == 0, kept.size() == 1);
    const int32_t a = *kept.begin();
    for (const int32_t b : kept) {
      if (logits[a] == logits[b]) continue;
      const double odds = std::log(row.Prob(a)) - std::log(row.Prob(b));
      EXPECT_NEAR((logits[a] - logits[b]) / odds, expected, 1e-5);
    }
  }

  static std::set<int32_t> Kept(const Distribution<Real>& row) {
    std::set<int32_t> kept;
    for (int32_t id = 0; id < row.vocab_size(); ++id) {
      if (row.Prob(id) > 0) kept.insert(id);
    }
    return kept;
  }

  // Padding is no part of the row; its probability is 0 all the same.
  static void ExpectProbs(const Distribution<Real>& row, const std::vector<double>& expected,
                          double tolerance) {
    for (size_t id = 0; id < expected.size(); ++id) {
      EXPECT_NEAR(row.Prob(static_cast<int32_t>(id)), expected[id], tolerance) << "id " << id;
    }
  }

  // Logits behind the one stage of the case.
  void ExpectEdited(const Json& test, const SamplingOptions& options,
                    const std::vector<double>& expected) {
    const std::string name = test.at("params").at("stage");
    const auto stages = AllStages<Real>();
    const auto stage = std::find_if(stages.begin(), stages.end(),
                                    [&](const auto& other) { return other.name == name; });
    ASSERT_NE(stage, stages.end()) << name;
    const std::vector<Real> logits = RowOf<Real>(test.at("inputs"));
    Candidates<Real> candidates;
    ASSERT_THAT(candidates.Assign(std::span<const Real>(logits), static_cast<int>(logits.size())),
                IsOk());
    const History history = HistoryOf(test.at("inputs"));
    RowContext context = history.Context();
    const std::vector<float> other = Unconditional(test.at("inputs"));
    context.unconditional = other;
    stage->apply(candidates, options, context);
    ASSERT_EQ(candidates.dense().size(), expected.size());
    for (size_t id = 0; id < expected.size(); ++id) {
      EXPECT_NEAR(candidates.dense()[id], expected[id], Tolerance(test)) << "id " << id;
    }
  }

  void RunDraw(const Json& test) {
    const Json& inputs = test.at("inputs");
    const std::vector<double> probs = Numbers<double>(inputs.at("probs"));
    absl::StatusOr<int32_t> token;
    if (test.at("params").at("draw") == "gumbel") {
      token = DrawGumbel(probs, Numbers<double>(inputs.at("uniforms")));
    } else {
      token = DrawToken(probs, inputs.at("u"));
    }
    if (test.at("expected").contains("error")) {
      ASSERT_EQ(test.at("expected").at("error"), "invalid_argument");
      EXPECT_THAT(token,
                  StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("[0, 1)")));
      return;
    }
    ASSERT_THAT(token, IsOk());
    EXPECT_EQ(*token, test.at("expected").at("token").get<int32_t>());
    if (test.at("params").at("draw") == "gumbel") return;
    const std::vector<Real> weights(probs.begin(), probs.end());
    EXPECT_EQ(InverseCdf(std::span<const Real>(weights), inputs.at("u").get<double>()), *token);
  }

  // What the message of a refused case names.
  static std::string Named(const Json& test) {
    if (test.at("name") == "refused/xtc-threshold-0") return "xtc_threshold: expected";
    const std::string error = test.at("expected").at("error");
    return error == "no_token_left" ? error : "logits";
  }

  void RunRefusal(const Json& test) {
    const std::string error = test.at("expected").at("error");
    const auto code = error == "no_token_left" ? absl::StatusCode::kFailedPrecondition
                                               : absl::StatusCode::kInvalidArgument;
    const Json& inputs = test.at("inputs");
    const auto row = Apply(inputs, OptionsOf(test.at("params")),
                           static_cast<int32_t>(RowOf<Real>(inputs).size()));
    EXPECT_THAT(row, StatusIs(code, ::testing::HasSubstr(Named(test))));
  }
};

using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(StageCasesTest, Reals);

TYPED_TEST(StageCasesTest, EveryCaseOfABuiltStage) {
  const Json data = ReadJson("sampling.json");
  int run = 0, not_built = 0, in_base = 0;
  for (const Json& test : data.at("cases")) {
    const std::string name = test.at("name");
    if (StartsWithAny(name, kNotBuilt)) {
      ++not_built;
    } else if (StartsWithAny(name, kInBase)) {
      ++in_base;
    } else {
      SCOPED_TRACE(name);
      this->Run(test);
      ++run;
    }
  }
  std::printf("[cases] sampling.json, %s: %d run, %d of stages not built, %d run by base\n",
              std::is_same_v<TypeParam, float> ? "float" : "double", run, not_built, in_base);
  EXPECT_EQ(not_built, kCasesNotBuilt);
  EXPECT_EQ(in_base, kCasesInBase);
  EXPECT_EQ(run, kCases - kCasesNotBuilt - kCasesInBase);
}

}  // namespace
}  // namespace paceline
