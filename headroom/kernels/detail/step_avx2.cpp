// The loops with AVX2, whose gathers look codes up. Compiled with -mavx2.
#include <immintrin.h>

#include "headroom/kernels/detail/step_work.h"

namespace headroom::kernels::detail {
namespace {

void look_up(const float* table, const std::uint8_t* codes, float scale, float* __restrict to) {
  const __m256 by = _mm256_set1_ps(scale);
  for (int i = 0; i < 128; i += 8) {
    std::int64_t eight;
    __builtin_memcpy(&eight, codes + i, 8);
    const __m256i index = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(eight));
    _mm256_storeu_ps(to + i, _mm256_mul_ps(_mm256_i32gather_ps(table, index, 4), by));
  }
}

__m256i codes_of(const DynamicCodes& codec, __m256 share) {
  const __m256i bits = _mm256_castps_si256(share);
  __m256i key = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x7fff));
  key = _mm256_sub_epi32(key, _mm256_set1_epi32(DynamicCodes::kFirst));
  key = _mm256_max_epi32(_mm256_min_epi32(key, _mm256_set1_epi32(DynamicCodes::kKeys - 1)),
                         _mm256_setzero_si256());
  const __m256i other_sign = _mm256_set1_epi32(DynamicCodes::kKeys + 3);
  key = _mm256_add_epi32(key, _mm256_and_si256(_mm256_srai_epi32(bits, 31), other_sign));
  const auto* const table = reinterpret_cast<const int*>(codec.lowest[0]);
  const __m256i below =
      _mm256_and_si256(_mm256_i32gather_epi32(table, key, 1), _mm256_set1_epi32(255));
  const __m256 is_above =
      _mm256_cmp_ps(share, _mm256_i32gather_ps(codec.above, below, 4), _CMP_GT_OQ);
  return _mm256_sub_epi32(below, _mm256_castps_si256(is_above));
}

void find_codes(const DynamicCodes& codec, const float* x, float inverse, std::uint8_t* codes) {
  const __m256 by = _mm256_set1_ps(inverse);
  const auto eight = [&](int i) {
    return codes_of(codec, _mm256_mul_ps(_mm256_loadu_ps(x + i), by));
  };
  for (int i = 0; i < 128; i += 16) {
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(eight(i), eight(i + 8)), 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
  }
}

// Four counters, in the low halves of 64 bits. Multiplication reads no high half, so they hold
// anything.
void philox_rounds(std::uint64_t key, std::uint32_t* a, std::uint32_t* b, std::uint32_t* c,
                   std::uint32_t* d) {
  const __m256i first_factor = _mm256_set1_epi64x(0xD2511F53),
                second_factor = _mm256_set1_epi64x(0xCD9E8D57);
  const __m256i first_step = _mm256_set1_epi32(static_cast<int>(0x9E3779B9)),
                second_step = _mm256_set1_epi32(static_cast<int>(0xBB67AE85));
  const auto load = [](const std::uint32_t* from) {
    return _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  };
  const auto store = [](std::uint32_t* to, __m256i words) {
    const __m256i low =
        _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(low));
  };
  for (int i = 0; i < kCalls; i += 4) {
    __m256i x = load(a + i), y = load(b + i), z = load(c + i), w = load(d + i);
    __m256i key0 = _mm256_set1_epi32(static_cast<int>(key)),
            key1 = _mm256_set1_epi32(static_cast<int>(key >> 32));
    for (int round = 0; round < 10; ++round) {
      const __m256i first = _mm256_mul_epu32(x, first_factor);
      const __m256i second = _mm256_mul_epu32(z, second_factor);
      x = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(second, 32), y), key0);
      z = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(first, 32), w), key1);
      y = second;
      w = first;
      key0 = _mm256_add_epi32(key0, first_step);
      key1 = _mm256_add_epi32(key1, second_step);
    }
    store(a + i, x), store(b + i, y), store(c + i, z), store(d + i, w);
  }
}

}  // namespace
}  // namespace headroom::kernels::detail

#include "headroom/kernels/detail/step_loops.h"

namespace headroom::kernels::detail {

const StepLoops kStepAvx2{step_adamw, step_compact, step_sgd, nearest};

}  // namespace headroom::kernels::detail
