#include "base/philox.h"

#include <algorithm>

#include "base/clones.h"

namespace paceline {
namespace {

constexpr uint32_t kMultiplierA = 0xD2511F53;
constexpr uint32_t kMultiplierB = 0xCD9E8D57;
constexpr uint32_t kKeyIncrementA = 0x9E3779B9;
constexpr uint32_t kKeyIncrementB = 0xBB67AE85;
constexpr int kRounds = 10;

// Blocks that are computed side by side, word by word.
constexpr int kLanes = 16;
using Words = uint32_t[kLanes];
struct Blocks {
  Words word[4];
};

// One round of every block.
inline __attribute__((always_inline)) void Round(Blocks& blocks, uint32_t key_a, uint32_t key_b) {
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t product_a = static_cast<uint64_t>(kMultiplierA) * blocks.word[0][i];
    const uint64_t product_b = static_cast<uint64_t>(kMultiplierB) * blocks.word[2][i];
    blocks.word[0][i] = static_cast<uint32_t>(product_b >> 32) ^ blocks.word[1][i] ^ key_a;
    blocks.word[1][i] = static_cast<uint32_t>(product_b);
    blocks.word[2][i] = static_cast<uint32_t>(product_a >> 32) ^ blocks.word[3][i] ^ key_b;
    blocks.word[3][i] = static_cast<uint32_t>(product_a);
  }
}

uint32_t Where(const NoiseAddress& address) {
  return static_cast<uint32_t>(address.purpose) << 24 |
         static_cast<uint32_t>(address.offset) << 16 | address.sub;
}

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
  return Philox4x32({block, address.position, Where(address), key.stream},
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

PACELINE_CLONES void TokenUniforms(const StreamKey& key, const NoiseAddress& address,
                                   uint32_t first_token, std::span<double> uniforms) {
  for (size_t done = 0; done < uniforms.size(); done += 2 * kLanes) {
    Blocks blocks;
    for (uint32_t i = 0; i < kLanes; ++i) {
      blocks.word[0][i] = 1 + (first_token + static_cast<uint32_t>(done)) / 2 + i;
      blocks.word[1][i] = address.position;
      blocks.word[2][i] = Where(address);
      blocks.word[3][i] = key.stream;
    }
    auto key_a = static_cast<uint32_t>(key.seed);
    auto key_b = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      Round(blocks, key_a, key_b);
      key_a += kKeyIncrementA;
      key_b += kKeyIncrementB;
    }
    double pairs[2][kLanes];
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < kLanes; ++i) {
        // Below 2^26: signed words convert the same.
        const auto high = static_cast<int32_t>(blocks.word[2 * half][i] >> 6);
        const auto low = static_cast<int32_t>(blocks.word[2 * half + 1][i] >> 6);
        pairs[half][i] = (high * 0x1p26 + low + 0.5) * 0x1p-52;
      }
    }
    const size_t count = std::min<size_t>(2 * kLanes, uniforms.size() - done);
    for (size_t i = 0; i < count; ++i) uniforms[done + i] = pairs[i % 2][i / 2];
  }
}

uint64_t DeriveSeed(uint64_t engine_seed, uint64_t ordinal) {
  const StreamKey key{engine_seed, static_cast<uint32_t>(ordinal)};
  const NoiseAddress address{static_cast<uint32_t>(ordinal >> 32), Purpose::kSeed};
  const auto words = PhiloxBlock(key, address, 0);
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

}  // namespace paceline
