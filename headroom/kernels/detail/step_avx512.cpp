// The loops with AVX-512. Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq.
#include <immintrin.h>

#include "headroom/kernels/detail/step_work.h"

namespace headroom::kernels::detail {
namespace {

void look_up(const float* table, const std::uint8_t* codes, float scale, float* __restrict to) {
  const __m512 by = _mm512_set1_ps(scale);
  for (int i = 0; i < 128; i += 16) {
    const __m512i index =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i)));
    _mm512_storeu_ps(to + i, _mm512_mul_ps(_mm512_i32gather_ps(index, table, 4), by));
  }
}

void find_codes(const DynamicCodes& codec, const float* x, float inverse, std::uint8_t* codes) {
  const __m512 by = _mm512_set1_ps(inverse);
  for (int i = 0; i < 128; i += 16) {
    const __m512 share = _mm512_mul_ps(_mm512_loadu_ps(x + i), by);
    const __m512i bits = _mm512_castps_si512(share);
    __m512i key = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x7fff));
    key = _mm512_sub_epi32(key, _mm512_set1_epi32(DynamicCodes::kFirst));
    key = _mm512_max_epi32(_mm512_min_epi32(key, _mm512_set1_epi32(DynamicCodes::kKeys - 1)),
                           _mm512_setzero_si512());
    key = _mm512_mask_add_epi32(key, _mm512_movepi32_mask(bits), key,
                                _mm512_set1_epi32(DynamicCodes::kKeys + 3));
    const __m512i below =
        _mm512_and_si512(_mm512_i32gather_epi32(key, codec.lowest[0], 1), _mm512_set1_epi32(255));
    const __mmask16 is_above =
        _mm512_cmp_ps_mask(share, _mm512_i32gather_ps(below, codec.above, 4), _CMP_GT_OQ);
    const __m512i code = _mm512_mask_add_epi32(below, is_above, below, _mm512_set1_epi32(1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(code));
  }
}

// Eight counters, in the low halves of 64 bits. Multiplication reads no high half, so they hold
// anything.
void philox_rounds(std::uint64_t key, std::uint32_t* a, std::uint32_t* b, std::uint32_t* c,
                   std::uint32_t* d) {
  const __m512i first_factor = _mm512_set1_epi64(0xD2511F53),
                second_factor = _mm512_set1_epi64(0xCD9E8D57);
  const __m512i first_step = _mm512_set1_epi32(static_cast<int>(0x9E3779B9)),
                second_step = _mm512_set1_epi32(static_cast<int>(0xBB67AE85));
  const auto load = [](const std::uint32_t* from) {
    return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  const auto store = [](std::uint32_t* to, __m512i words) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(words));
  };
  for (int i = 0; i < kCalls; i += 8) {
    __m512i x = load(a + i), y = load(b + i), z = load(c + i), w = load(d + i);
    __m512i key0 = _mm512_set1_epi32(static_cast<int>(key)),
            key1 = _mm512_set1_epi32(static_cast<int>(key >> 32));
    for (int round = 0; round < 10; ++round) {
      const __m512i first = _mm512_mul_epu32(x, first_factor);
      const __m512i second = _mm512_mul_epu32(z, second_factor);
      x = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(second, 32), y), key0);
      z = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(first, 32), w), key1);
      y = second;
      w = first;
      key0 = _mm512_add_epi32(key0, first_step);
      key1 = _mm512_add_epi32(key1, second_step);
    }
    store(a + i, x), store(b + i, y), store(c + i, z), store(d + i, w);
  }
}

}  // namespace
}  // namespace headroom::kernels::detail

#include "headroom/kernels/detail/step_loops.h"

namespace headroom::kernels::detail {

const StepLoops kStepAvx512 = kLoops;

}  // namespace headroom::kernels::detail
