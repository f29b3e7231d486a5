#include <immintrin.h>

#include <cstdint>

#include "headroom/kernels/detail/codes.h"

namespace headroom::kernels {
namespace {

// Sixteen numbers at once. The permutation looks at the last four bits of its index only, so that a
// byte beside its copy, shifted, is two indices.
void whole_block(float scale, const std::uint8_t* codes, float* numbers) {
  const __m512 all = _mm512_mul_ps(_mm512_loadu_ps(kNf4.value), _mm512_set1_ps(scale));
  for (int i = 0; i < 4; ++i) {
    const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i));
    const __m512i byte = _mm512_cvtepu8_epi64(eight);
    const __m512i code = _mm512_or_si512(_mm512_srli_epi64(byte, 4), _mm512_slli_epi64(byte, 32));
    _mm512_storeu_ps(numbers + 16 * i, _mm512_permutexvar_ps(code, all));
  }
}

// 32 numbers of 16 bits at once; five bits of the index count, and the table is there twice.
template <typename T>
requires(sizeof(T) == 2) void look_up(const T (&table)[16], const std::uint8_t* codes, T* numbers) {
  const __m512i all =
      _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)));
  for (int i = 0; i < 2; ++i) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes) + i);
    const __m512i byte = _mm512_cvtepu8_epi32(sixteen);
    const __m512i code = _mm512_or_si512(_mm512_srli_epi32(byte, 4), _mm512_slli_epi32(byte, 16));
    _mm512_storeu_si512(reinterpret_cast<__m512i*>(numbers) + i,
                        _mm512_permutexvar_epi16(code, all));
  }
}

}  // namespace
}  // namespace headroom::kernels

#include "headroom/kernels/detail/packed_variant.h"

namespace headroom::kernels {

const PackedCpu kPackedAvx512 = kVariant;

}  // namespace headroom::kernels
