// The kernels' vector operations in AVX2, FMA and F16C; see simd_portable.h for what each one does.
// To be included by files compiled for these alone.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace paceline::cpu {

struct Avx2 {
  using Floats = __m256;
  using Ints = __m256i;
  using Bytes = __m256i;
  using Sums = __m256i;  // [8 rows][2] int16

  static constexpr int kRowsTogether = 4;
  static constexpr int kSumsTogether = 8;
  static constexpr int kHeadsTogether = 6;
  // Two products of a group go to one int16: 2 x 15 x 127 x 8, 2 x 31 x 127 x 4, 2 x 63 x 127 x 2.
  static constexpr int kGroupsInSum[9] = {8, 8, 8, 8, 8, 4, 2, 1, 1};
  static constexpr bool kSignedAsUnsigned = false;

  static Floats Set(float value) { return _mm256_set1_ps(value); }
  static Floats Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Floats x) { _mm256_storeu_ps(to, x); }
  static Floats LoadHalf(const uint16_t* from) { return _mm256_cvtph_ps(Load128(from)); }
  static void StoreHalf(uint16_t* to, Floats x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static Floats LoadInt8(const int8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static Floats LoadBrain(const uint16_t* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(Load128(from)), 16));
  }

  static Floats Add(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats Subtract(Floats x, Floats y) { return _mm256_sub_ps(x, y); }
  static Floats Multiply(Floats x, Floats y) { return _mm256_mul_ps(x, y); }
  static Floats Divide(Floats x, Floats y) { return _mm256_div_ps(x, y); }
  static Floats Fma(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(x, y, z); }
  static Floats Max(Floats x, Floats y) { return _mm256_max_ps(x, y); }
  static Floats Min(Floats x, Floats y) { return _mm256_min_ps(x, y); }
  static Floats Magnitude(Floats x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static Floats Round(Floats x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Floats PowerOfTwo(Floats x) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static Floats ToFloat(Ints x) { return _mm256_cvtepi32_ps(x); }
  static void StoreInt8(int8_t* to, Floats x) {
    const __m256i wide = _mm256_cvtps_epi32(x);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(words, words));
  }

  static Ints ZeroInts() { return _mm256_setzero_si256(); }
  static Ints Plus(Ints x, Ints y) { return _mm256_add_epi32(x, y); }

  static Bytes LoadBytes(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Bytes LowNibbles(Bytes bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
  static Bytes HighNibbles(Bytes bytes) { return LowNibbles(_mm256_srli_epi16(bytes, 4)); }
  template <int kFirst>
  static Bytes Pairs(Bytes bytes) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, kFirst), _mm256_set1_epi8(3));
  }
  template <int kFirst, int kBits, int kTo>
  static Bytes WithUpperBits(Bytes low, Bytes upper) {
    const Bytes moved = kFirst < kTo ? _mm256_slli_epi16(upper, kTo - kFirst)
                                     : _mm256_srli_epi16(upper, kFirst - kTo);
    const Bytes mask = _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo));
    return _mm256_or_si256(low, _mm256_and_si256(moved, mask));
  }
  static Bytes LookUp(const int8_t* table, Bytes nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(Load128(table)), nibbles);
  }

  static Sums ZeroSums() { return _mm256_setzero_si256(); }
  static Sums DotUnsigned(Sums sums, Bytes weights, const int8_t* four) {
    return Here(_mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, Four(four))));
  }
  static Ints Widen(Sums sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
  // |w| a sign(w): 2 x 128 x 127 fits; a second such pair would not.
  static Ints DotSigned(Ints sums, Bytes weights, const int8_t* four) {
    const __m256i pairs =
        _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(Four(four), weights));
    return Here(_mm256_add_epi32(sums, Widen(pairs)));
  }

 protected:
  // Computed here and kept in a register. Without it gcc puts the additions off to where their sum
  // is used, and spills what is to be added: half the speed at four rows.
  static __m256i Here(__m256i x) {
    asm("" : "+v"(x));
    return x;
  }
  static __m128i Load128(const void* from) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  }
  // Four activations, for each of the eight rows.
  static __m256i Four(const int8_t* four) {
    int32_t word;
    std::memcpy(&word, four, sizeof word);
    return _mm256_set1_epi32(word);
  }
};

}  // namespace paceline::cpu
