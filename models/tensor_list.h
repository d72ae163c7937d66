// The list of a model's tensors by the names that engines ask for, whatever file they come from.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "models/model_config.h"
#include "models/weight_source.h"

namespace paceline {

// Whether `name` is of a tensor that holds queries, keys and values, rows one below the other.
bool IsFused(std::string_view name);

// Appends the three parts of such a tensor. kDataLoss naming it if its rows are not those of
// `config`; `file` begins the message.
absl::Status SplitFused(const std::string& file, const ModelConfig& config, const TensorView& fused,
                        std::vector<TensorView>& tensors);

// OK if `tensors` are exactly those that TensorsOf(config) lists. kDataLoss naming the first that
// is missing or misshapen, kUnimplemented naming one that would be left out. `name_of` gives the
// names of messages, where files have other ones.
absl::Status CheckTensors(
    const std::string& file, const ModelConfig& config, const std::vector<TensorView>& tensors,
    const std::function<std::string(const std::string&)>& name_of = std::identity());

}  // namespace paceline
