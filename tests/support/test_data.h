// Reads the recorded cases in tests/data.
#pragma once

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace paceline::testing {

inline std::string DataPath(const std::string& name) {
  return std::string(PACELINE_TEST_DATA) + "/" + name;
}

inline nlohmann::json ReadJson(const std::string& name) {
  std::ifstream in(DataPath(name));
  if (!in) throw std::runtime_error("missing test data: " + DataPath(name));
  return nlohmann::json::parse(in);
}

// The case files write -inf, inf and nan as strings.
inline double Number(const nlohmann::json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return (text == "-inf" ? -1.0 : 1.0) * std::numeric_limits<double>::infinity();
}

template <typename Real>
std::vector<Real> Numbers(const nlohmann::json& values) {
  std::vector<Real> numbers;
  for (const auto& value : values) numbers.push_back(static_cast<Real>(Number(value)));
  return numbers;
}

}  // namespace paceline::testing
