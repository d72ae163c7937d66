// The operators as a Python program calls them: by name, through the dispatcher.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "batch/tensor_api.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using Arguments = std::map<std::string, c10::IValue>;

// Calls paceline::`name` with `arguments`, the others at their defaults; returns its tensors.
std::vector<at::Tensor> Call(const std::string& name, const Arguments& arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(("paceline::" + name).c_str(), "");
  std::vector<c10::IValue> stack;
  size_t used = 0;
  for (const c10::Argument& argument : op.schema().arguments()) {
    const auto given = arguments.find(argument.name());
    used += given != arguments.end() ? 1 : 0;
    stack.push_back(given != arguments.end() ? given->second
                                             : argument.default_value().value_or(c10::IValue()));
  }
  EXPECT_EQ(used, arguments.size()) << "an argument that " << name << " has not";
  op.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

at::Tensor Number(double value) { return at::scalar_tensor(value, at::kDouble); }

class TorchOpsTest : public ::testing::Test {
 protected:
  TorchOpsTest() {
    at::manual_seed(9);
    target_ = at::randn({kRequests, kDraft + 1, kVocab}, at::kDouble) * 2;
    probs_ = at::softmax(
        target_.slice(1, 0, kDraft) + at::randn({kRequests, kDraft, kVocab}, at::kDouble), -1);
    tokens_ = probs_.reshape({-1, kVocab}).multinomial(1).reshape({kRequests, kDraft});
    seeds_ = at::arange(kRequests, at::kLong);
    positions_ = at::full({1}, 40, at::kLong);
  }
  Arguments Chain() {
    return {{"draft_tokens", tokens_},
            {"target", target_},
            {"draft", probs_},
            {"seeds", seeds_},
            {"positions", positions_}};
  }
  VerifyResult Api(const char* rule, const SamplingOptions& sampling) {
    DraftTensors draft;
    draft.tokens = tokens_;
    draft.probs = probs_;
    VerifySettings settings;
    settings.rule = *FindRule(rule);
    settings.sampling = {&sampling, 1};
    VerifyResult result;
    EXPECT_THAT(Verify(draft, {target_}, {seeds_, {}, positions_}, settings, workspace_, result),
                testing::IsOk());
    return result;
  }

  static constexpr int64_t kRequests = 32;
  static constexpr int64_t kDraft = 3;
  static constexpr int64_t kVocab = 30;
  at::Tensor target_, probs_, tokens_, seeds_, positions_;
  Workspace workspace_;
};

TEST_F(TorchOpsTest, ChainsAreVerifiedAsByTheApi) {
  SamplingOptions warped;
  warped.temperature = 0.7;
  warped.top_k = 12;
  warped.top_p = 0.9;
  warped.min_p = 0.02;
  Arguments arguments = Chain();
  arguments["temperature"] = Number(0.7);
  arguments["top_k"] = at::scalar_tensor(12, at::kLong);
  arguments["top_p"] = Number(0.9);
  arguments["min_p"] = Number(0.02);
  for (const char* rule : {"standard", "block", "match", "coupled"}) {
    const VerifyResult expected = Api(rule, warped);
    arguments["rule"] = rule;
    const auto results = Call("verify_chain", arguments);
    EXPECT_TRUE(at::equal(results[0], expected.tokens)) << rule;
    EXPECT_TRUE(at::equal(results[1], expected.num_accepted)) << rule;
    EXPECT_GT(expected.num_accepted.sum().item<int64_t>(), 0) << rule;
    if (std::string(rule) != "block") continue;
    arguments.erase("rule");
    EXPECT_TRUE(at::equal(Call("verify_block", arguments)[0], expected.tokens));
  }
}

TEST_F(TorchOpsTest, SettingsMayDifferFromRequestToRequest) {
  Arguments arguments = Chain();
  arguments["temperature"] = at::arange(kRequests, at::kFloat) / 8;
  const auto mixed = Call("verify_chain", arguments);
  for (const int64_t b : {0, 5, 31}) {
    SamplingOptions sampling;
    sampling.temperature = static_cast<double>(b) / 8;
    EXPECT_TRUE(at::equal(mixed[0][b], Api("standard", sampling).tokens[b]));
  }
}

TEST_F(TorchOpsTest, BothFormsOfATreeAreOne) {
  // Two children of the root, two of the first of them.
  const at::Tensor tokens = at::tensor({3, 5, 1, 2}, at::kLong).repeat({kRequests, 1});
  const at::Tensor parents = at::tensor({-1, -1, 0, 0}, at::kLong).repeat({kRequests, 1});
  const at::Tensor target = at::randn({kRequests, 5, 8}, at::kDouble);
  Arguments arguments{{"draft_tokens", tokens},
                      {"target", target},
                      {"parents", parents},
                      {"seeds", seeds_},
                      {"positions", positions_}};
  const auto by_parents = Call("verify_tree", arguments);
  arguments.erase("parents");
  arguments["draft_tokens"] = at::cat({at::full({kRequests, 1}, 7, at::kLong), tokens}, 1);
  arguments["first_child"] = at::tensor({1, 3, -1, -1, -1}, at::kLong).repeat({kRequests, 1});
  arguments["next_sibling"] = at::tensor({-1, 2, -1, 4, -1}, at::kLong).repeat({kRequests, 1});
  const auto linked = Call("verify_tree", arguments);
  EXPECT_TRUE(at::equal(by_parents[0], linked[0]));
  EXPECT_TRUE(at::equal(by_parents[1], linked[1]));
  EXPECT_TRUE(
      at::equal(at::where(by_parents[2] >= 0, by_parents[2] + 1, by_parents[2]), linked[2]));
  EXPECT_EQ(by_parents[1].max().item<int64_t>(), 2);
}

// Shapes and types without data are those with data.
TEST_F(TorchOpsTest, MetaKernelsGiveShapesAndTypes) {
  const auto on_meta = [](Arguments arguments) {
    for (auto& [name, value] : arguments) {
      if (value.isTensor()) value = value.toTensor().to(at::kMeta);
    }
    return arguments;
  };
  const auto compare = [&](const char* name, const Arguments& arguments) {
    const auto real = Call(name, arguments);
    const auto meta = Call(name, on_meta(arguments));
    ASSERT_EQ(real.size(), meta.size());
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(real[i].sizes(), meta[i].sizes()) << name;
      EXPECT_EQ(real[i].scalar_type(), meta[i].scalar_type()) << name;
      EXPECT_TRUE(meta[i].is_meta()) << name;
    }
  };
  compare("verify_chain", Chain());
  compare("verify_block", Chain());
  Arguments narrow = Chain();
  narrow["draft_tokens"] = tokens_.to(at::kInt);
  compare("verify_chain", narrow);
  Arguments ragged = Chain();
  ragged["draft_tokens"] = tokens_.reshape({-1});
  ragged["draft"] = probs_.reshape({-1, kVocab});
  ragged["target"] = target_.reshape({-1, kVocab});
  ragged["cu_num_draft"] = (at::arange(kRequests, at::kLong) + 1) * kDraft;
  ragged["max_draft"] = 5;
  compare("verify_chain", ragged);
  Arguments tree = Chain();
  tree.erase("draft");
  tree["parents"] = at::arange(kDraft, at::kLong).sub(1).repeat({kRequests, 1});
  compare("verify_tree", tree);
  compare("warp_probs", {{"logits", target_}});
  compare("warp_probs", {{"logits", target_.to(at::kBFloat16)}});
  compare("sample", {{"rows", target_.select(1, 0)}, {"seeds", seeds_}, {"positions", positions_}});
}

TEST_F(TorchOpsTest, ErrorsNameTheArgument) {
  const auto error = [&](const std::string& name, const c10::IValue& value) {
    Arguments arguments = Chain();
    arguments[name] = value;
    return ErrorOf([&] { Call("verify_chain", arguments); });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error("rule", "best"), HasSubstr("verify: expected one of standard"));
  EXPECT_THAT(error("draw", "dice"), HasSubstr("draw: expected inverse-cdf or gumbel, got 'dice'"));
  EXPECT_THAT(error("temperature", Number(-1)), HasSubstr("temperature: expected"));
  EXPECT_THAT(error("top_k", Number(-5)), HasSubstr("top_k: expected a number in [-1"));
  EXPECT_THAT(error("top_p", at::ones({3})), HasSubstr("top_p: expected one number, or 32"));
  EXPECT_THAT(error("max_draft", 3), HasSubstr("max_draft: expected with cu_num_draft"));
  EXPECT_THAT(error("seeds", at::ones({kRequests})), HasSubstr("seeds: expected int32 or int64"));
  Arguments arguments = Chain();
  arguments["logits"] = false;
  arguments["target"] = target_.softmax(-1);
  arguments["temperature"] = Number(0.5);
  EXPECT_THAT(ErrorOf([&] { Call("verify_chain", arguments); }),
              HasSubstr("expected none with logits=False"));
  EXPECT_THAT(ErrorOf([&] {
                Call("verify_tree", {{"draft_tokens", tokens_},
                                     {"target", target_},
                                     {"seeds", seeds_},
                                     {"positions", positions_}});
              }),
              HasSubstr("expected parents, or first_child and next_sibling"));
}

}  // namespace
}  // namespace paceline
