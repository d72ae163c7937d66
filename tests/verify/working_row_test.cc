#include "verify/working_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "sampling/pipeline.h"
#include "tests/support/laws.h"
#include "tests/support/status_matchers.h"

namespace paceline {
namespace {

using testing::IsOk;
using testing::MakeRow;

template <typename Real>
std::vector<double> Probs(const WorkingRow<Real>& row, int32_t vocab_size) {
  std::vector<double> probs;
  for (int32_t id = 0; id < vocab_size; ++id) probs.push_back(row.Prob(id));
  return probs;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], bound) << "token " << i;
}

template <typename Real>
class WorkingRowTest : public ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(WorkingRowTest, Reals);

TYPED_TEST(WorkingRowTest, SubtractsAndNormalises) {
  const auto target = MakeRow<TypeParam>({0.5, 0.25, 0.25, 0});
  const auto draft = MakeRow<TypeParam>({0.25, 0.125, 0.5, 0.125});
  WorkingRow<TypeParam> left(target);
  EXPECT_DOUBLE_EQ(left.Subtract(1.0, draft), 0.375);
  ExpectNear(Probs(left, 4), {2.0 / 3, 1.0 / 3, 0, 0}, 1e-15);
  // Once more, from what is left, with a draft that has lost a token.
  WorkingRow<TypeParam> rest(draft);
  rest.Remove(1);
  ExpectNear(Probs(rest, 4), {2.0 / 7, 0, 4.0 / 7, 1.0 / 7}, 1e-15);
  EXPECT_NEAR(left.Subtract(1.0, rest), 2.0 / 3 - 2.0 / 7 + 1.0 / 3, 1e-15);
  ExpectNear(Probs(left, 4), {8.0 / 15, 7.0 / 15, 0, 0}, 1e-15);
}

TYPED_TEST(WorkingRowTest, StaysWhereNothingIsLeft) {
  const auto row = MakeRow<TypeParam>({0.5, 0.5, 0});
  WorkingRow<TypeParam> left(row);
  EXPECT_EQ(left.Subtract(1.0, row), 0);
  EXPECT_EQ(left.Subtract(0.0, row), 0);
  ExpectNear(Probs(left, 3), {0.5, 0.5, 0}, 0);
}

TYPED_TEST(WorkingRowTest, RemovingEveryTokenLeavesNothingToSubtract) {
  const auto row = MakeRow<TypeParam>({0.5, 0.5, 0});
  WorkingRow<TypeParam> gone(row);
  gone.Remove(0);
  gone.Remove(1);
  gone.Remove(7);
  EXPECT_TRUE(gone.empty());
  EXPECT_EQ(gone.Prob(0), 0);
  WorkingRow<TypeParam> left(row);
  EXPECT_DOUBLE_EQ(left.Subtract(1.0, gone), 1.0);
  ExpectNear(Probs(left, 3), {0.5, 0.5, 0}, 0);
}

template <typename Real>
Distribution<Real> RandomRow(uint64_t seed, int32_t keep) {
  std::vector<Real> logits;
  for (uint32_t id = 0; id < 67; ++id) {
    logits.push_back(static_cast<Real>(4 * TokenUniform({seed, 0}, {}, id)));
  }
  SamplingOptions options;
  options.top_k = keep;
  auto pipeline = Pipeline<Real>::Create(options, 67);
  EXPECT_THAT(pipeline, IsOk());
  return *pipeline->Apply(std::span<const Real>(logits), {});
}

// A sparse row and its dense copy are the same row, on either side and after any change.
TYPED_TEST(WorkingRowTest, SparseAndDenseAgree) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto target = RandomRow<TypeParam>(seed, static_cast<int32_t>(1 + seed));
    const auto draft = RandomRow<TypeParam>(seed + 100, static_cast<int32_t>(40 - seed));
    const auto dense = [](const auto& row) {
      const auto probs = row.Dense();
      return *Distribution<TypeParam>::FromProbs(probs);
    };
    const auto dense_target = dense(target);
    const auto dense_draft = dense(draft);
    const auto work = [](const auto& p, const auto& q) {
      WorkingRow<TypeParam> left(p);
      WorkingRow<TypeParam> rest(q);
      left.Subtract(0.9, rest);
      rest.Remove(q.Argmax());
      left.Subtract(1.0, rest);
      left.SubtractMin(0.4, 1.5, q);
      return Probs(left, 67);
    };
    const std::vector<double> expected = work(dense_target, dense_draft);
    ExpectNear(work(target, draft), expected, 1e-14);
    ExpectNear(work(target, dense_draft), expected, 1e-14);
    ExpectNear(work(dense_target, draft), expected, 1e-14);
  }
}

}  // namespace
}  // namespace paceline
