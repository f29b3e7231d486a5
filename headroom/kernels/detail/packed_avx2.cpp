#include <immintrin.h>

#include <cstdint>

#include "headroom/kernels/detail/codes.h"

namespace headroom::kernels {
namespace {

// Eight numbers at once: two permutations of half the table, between which bit 3 of the code
// chooses.
void whole_block(float scale, const std::uint8_t* codes, float* numbers) {
  const __m256 s = _mm256_set1_ps(scale);
  const __m256 low = _mm256_mul_ps(_mm256_loadu_ps(kNf4.value), s),
               high = _mm256_mul_ps(_mm256_loadu_ps(kNf4.value + 8), s);
  const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
  for (int i = 0; i < 8; ++i) {
    int four = 0;
    __builtin_memcpy(&four, codes + 4 * i, 4);
    const __m256i code = _mm256_srlv_epi32(_mm256_set1_epi32(four), shifts);
    const __m256 chosen =
        _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code), _mm256_permutevar8x32_ps(high, code),
                         _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
    _mm256_storeu_ps(numbers + 8 * i, chosen);
  }
}

// The table's lower bytes, and its higher ones, each twice: as the byte shuffle takes them.
struct Bytes16 {
  __m256i low, high;
};
Bytes16 bytes_of(const void* table) {
  const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table));
  const __m256i low = _mm256_and_si256(all, _mm256_set1_epi16(0xff));
  const __m256i both =
      _mm256_permute4x64_epi64(_mm256_packus_epi16(low, _mm256_srli_epi16(all, 8)), 0xd8);
  return {_mm256_permute4x64_epi64(both, 0x44), _mm256_permute4x64_epi64(both, 0xee)};
}

// 32 numbers of 16 bits at once.
template <typename T>
requires(sizeof(T) == 2) void look_up(const T (&table)[16], const std::uint8_t* codes, T* numbers) {
  const Bytes16 bytes = bytes_of(table);
  const __m128i half = _mm_set1_epi8(15);
  for (int i = 0; i < 2; ++i) {
    const __m128i two = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes) + i);
    const __m128i odd = _mm_and_si128(two, half);
    const __m128i even = _mm_and_si128(_mm_srli_epi16(two, 4), half);
    const __m256i code =
        _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    const __m256i low = _mm256_shuffle_epi8(bytes.low, code);
    const __m256i high = _mm256_shuffle_epi8(bytes.high, code);
    const __m256i one = _mm256_unpacklo_epi8(low, high), other = _mm256_unpackhi_epi8(low, high);
    __m256i* const to = reinterpret_cast<__m256i*>(numbers) + 2 * i;
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(one, other, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(one, other, 0x31));
  }
}

}  // namespace
}  // namespace headroom::kernels

#include "headroom/kernels/detail/packed_variant.h"

namespace headroom::kernels {

const PackedCpu kPackedAvx2 = kVariant;

}  // namespace headroom::kernels
