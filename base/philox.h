// Addressed random numbers: Philox4x32-10 as a pure function of (seed, stream, address).
//
// Nothing is ever advanced. A draw names its number by where it is used, so replays, batches,
// rejected drafts and thread counts cannot disturb it.
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace paceline {

// Key of one generated sequence. Copyable value; owns nothing.
struct StreamKey {
  uint64_t seed = 0;
  uint32_t stream = 0;  // Index of the sequence inside its request (choice number).
};

// What a number is used for. Different purposes never share a number.
enum class Purpose : uint8_t {
  kToken = 0,    // plain, residual and bonus draws; the target's draw of `match`
  kDraft = 1,    // a drafter's draw
  kAccept = 2,   // the acceptance coin
  kXtc = 3,      // the coin of the XTC stage
  kExplore = 4,  // probes of a draft-length controller
  kSeed = 5,     // derivation of a request's seed
};

// Where in a stream a number lies. In a chain `sub` is 0; in a tree it is the node number
// (TokenTree index + 1).
struct NoiseAddress {
  uint32_t position = 0;  // Absolute position of the token being drawn.
  Purpose purpose = Purpose::kToken;
  uint8_t offset =
      0;  // Position minus the committed length at the start of the round; 0 for kToken.
  uint16_t sub = 0;

  bool operator==(const NoiseAddress&) const = default;
};

// Ten rounds of Philox4x32 on `counter` under `key`.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The four words at `block` of an address.
std::array<uint32_t, 4> PhiloxBlock(const StreamKey& key, const NoiseAddress& address,
                                    uint32_t block);

// Uniform in [0, 1) with 53 bits, from block 0.
double Uniform(const StreamKey& key, const NoiseAddress& address);

// Uniform in (0, 1) of one token id, with 52 bits, from blocks 1 and up.
double TokenUniform(const StreamKey& key, const NoiseAddress& address, uint32_t token);

// uniforms[i] = TokenUniform(key, address, first_token + i), many at a time. first_token is even.
void TokenUniforms(const StreamKey& key, const NoiseAddress& address, uint32_t first_token,
                   std::span<double> uniforms);

// Seed of the `ordinal`-th request that came without one.
uint64_t DeriveSeed(uint64_t engine_seed, uint64_t ordinal);

}  // namespace paceline
