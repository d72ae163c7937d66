// Target rows that are there already.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "verify/rule.h"

namespace paceline {

// For programs that bring their own rows: entry 0 judges the children of the root, entry i + 1 those
// of drafted node i; of a chain of K tokens the K-th is the bonus row. kInvalidArgument for a row that
// is asked for and not there.
template <typename Real>
class GivenRows : public TargetRows<Real> {
 public:
  explicit GivenRows(std::vector<Distribution<Real>> rows) : rows_(std::move(rows)) {}

  absl::StatusOr<const Distribution<Real>*> Row(int32_t node) override {
    if (static_cast<size_t>(node + 1) < rows_.size()) return &rows_[node + 1];
    return absl::InvalidArgumentError(absl::StrCat("rows: expected one for the root and one for each ",
                                                   "drafted node, got ", rows_.size()));
  }

 private:
  std::vector<Distribution<Real>> rows_;
};

}  // namespace paceline
