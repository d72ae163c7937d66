#include "sampling/log_probs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sampling/row_math.h"

namespace paceline {
namespace {

bool Before(const TokenLogProb& a, const TokenLogProb& b) {
  return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.token < b.token);
}

LogProbs Select(std::vector<TokenLogProb> all, TokenLogProb emitted, int32_t num_top) {
  LogProbs result{emitted, {}};
  const auto count = std::min<size_t>(num_top, all.size());
  std::partial_sort(all.begin(), all.begin() + count, all.end(), Before);
  all.resize(count);
  const bool present = std::any_of(all.begin(), all.end(), [&](const TokenLogProb& entry) {
    return entry.token == emitted.token;
  });
  if (num_top > 0 && !present) all.push_back(emitted);
  result.top = std::move(all);
  return result;
}

}  // namespace

LogProbs RawLogProbs(std::span<const float> logits, int32_t vocab_size, int32_t token,
                     int32_t num_top) {
  logits = logits.first(vocab_size);
  const float max = RowMax(logits);
  const double log_mass = max + std::log(SumExp(logits, max).mass);
  std::vector<TokenLogProb> all;
  all.reserve(num_top > 0 ? logits.size() : 0);
  for (int32_t id = 0; num_top > 0 && id < vocab_size; ++id) {
    all.push_back({id, logits[id] - log_mass});
  }
  return Select(std::move(all), {token, logits[token] - log_mass}, num_top);
}

LogProbs ProcessedLogProbs(const Distribution<float>& row, int32_t token, int32_t num_top) {
  std::vector<TokenLogProb> all;
  const std::vector<float> dense = num_top > 0 ? row.Dense() : std::vector<float>();
  for (size_t id = 0; id < dense.size(); ++id) {
    all.push_back({static_cast<int32_t>(id), std::log(static_cast<double>(dense[id]))});
  }
  const TokenLogProb emitted{token, std::log(static_cast<double>(row.Prob(token)))};
  return Select(std::move(all), emitted, num_top);
}

double RawEntropyBits(std::span<const float> logits, int32_t vocab_size) {
  logits = logits.first(vocab_size);
  return SumExp(logits, RowMax(logits)).EntropyBits();
}

}  // namespace paceline
