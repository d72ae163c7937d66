#include "base/philox.h"

namespace paceline {
namespace {

constexpr uint32_t kMultiplierA = 0xD2511F53;
constexpr uint32_t kMultiplierB = 0xCD9E8D57;
constexpr uint32_t kKeyIncrementA = 0x9E3779B9;
constexpr uint32_t kKeyIncrementB = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product_a = static_cast<uint64_t>(kMultiplierA) * counter[0];
    const uint64_t product_b = static_cast<uint64_t>(kMultiplierB) * counter[2];
    counter = {static_cast<uint32_t>(product_b >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product_b),
               static_cast<uint32_t>(product_a >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product_a)};
    key[0] += kKeyIncrementA;
    key[1] += kKeyIncrementB;
  }
  return counter;
}

std::array<uint32_t, 4> PhiloxBlock(const StreamKey& key, const NoiseAddress& address,
                                    uint32_t block) {
  const uint32_t where = static_cast<uint32_t>(address.purpose) << 24 |
                         static_cast<uint32_t>(address.offset) << 16 | address.sub;
  return Philox4x32({block, address.position, where, key.stream},
                    {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
}

double Uniform(const StreamKey& key, const NoiseAddress& address) {
  const auto words = PhiloxBlock(key, address, 0);
  return ((words[0] >> 5) * 0x1p26 + (words[1] >> 6)) * 0x1p-53;
}

double TokenUniform(const StreamKey& key, const NoiseAddress& address, uint32_t token) {
  const auto words = PhiloxBlock(key, address, 1 + token / 2);
  const uint32_t high = words[token % 2 * 2] >> 6;
  const uint32_t low = words[token % 2 * 2 + 1] >> 6;
  return (high * 0x1p26 + low + 0.5) * 0x1p-52;
}

uint64_t DeriveSeed(uint64_t engine_seed, uint64_t ordinal) {
  const StreamKey key{engine_seed, static_cast<uint32_t>(ordinal)};
  const NoiseAddress address{static_cast<uint32_t>(ordinal >> 32), Purpose::kSeed};
  const auto words = PhiloxBlock(key, address, 0);
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

}  // namespace paceline
