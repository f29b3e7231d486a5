// The loops with AVX2. Codes are computed (Pieces in codes.h): some processors gather slowly.
// Compiled with -mavx2.
#include <immintrin.h>

#include <cstdint>

#include "headroom/kernels/detail/step_work.h"

namespace headroom::kernels::detail {
namespace {

// The piece of a float from its upper 16 bits: their value where pieces begin, and 2^16 times the
// pieces (or powers of ten) for each further one.
constexpr int kFirstKey = 13109 << 16 | 0xffff, kPiecesOfKey = 154 << 16;

void look_up(const float* table, const std::uint8_t* codes, float scale, float* __restrict to) {
  const __m256 by = _mm256_set1_ps(scale);
  for (int i = 0; i < 128; i += 8) {
    const auto at = [&](int k) { return table[codes[i + k]]; };
    const __m256 numbers = _mm256_setr_ps(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
    _mm256_storeu_ps(to + i, _mm256_mul_ps(numbers, by));
  }
}

// Of eight pieces.
__m256 of_each(const float (&values)[8], __m256i piece) {
  return _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), piece);
}

// Codes of eight numbers, and whether they may be wrong.
struct Found {
  __m256i codes, is_doubtful;
};

Found compute(const Pieces& pieces, __m256 share) {
  const __m256i sign = _mm256_set1_epi32(pieces.zero > 0 ? static_cast<int>(0x80000000U) : 0);
  const __m256i bits = _mm256_castps_si256(share), magnitude_bits = _mm256_andnot_si256(sign, bits);
  const __m256 magnitude = _mm256_castsi256_ps(magnitude_bits);
  // The upper bits of a float are almost its logarithm: they give the piece, or the one before.
  const __m256i above_first = _mm256_subs_epu16(magnitude_bits, _mm256_set1_epi32(kFirstKey));
  const __m256i early =
      _mm256_srli_epi32(_mm256_mulhi_epu16(above_first, _mm256_set1_epi32(kPiecesOfKey)), 16);
  const __m256 end = of_each(pieces.end, early);
  const __m256i is_later = _mm256_castps_si256(_mm256_cmp_ps(magnitude, end, _CMP_GT_OQ));
  const __m256i piece = _mm256_sub_epi32(early, is_later);
  const __m256 even =
      _mm256_fmadd_ps(magnitude, of_each(pieces.slope, piece), of_each(pieces.start, piece));
  // NaN becomes INT32_MIN.
  const __m256i place = _mm256_cvttps_epi32(_mm256_min_ps(of_each(pieces.last, piece), even));
  const __m256i code =
      _mm256_max_epi32(_mm256_srai_epi32(place, Pieces::kBits), _mm256_setzero_si256());
  const __m256i negative = _mm256_srai_epi32(_mm256_and_si256(bits, sign), 31);
  const __m256 is_one = _mm256_cmp_ps(share, _mm256_set1_ps(pieces.one), _CMP_GT_OQ);
  const __m256i more = _mm256_sub_epi32(_mm256_sub_epi32(_mm256_set1_epi32(pieces.zero), negative),
                                        _mm256_castps_si256(is_one));
  const __m256i part = _mm256_and_si256(place, _mm256_set1_epi32((1 << Pieces::kBits) - 1));
  const __m256i is_between = _mm256_cmpgt_epi32(_mm256_set1_epi32(2 * Pieces::kDoubt), part);
  const __m256i is_end = _mm256_castps_si256(_mm256_cmp_ps(magnitude, end, _CMP_EQ_OQ));
  return {_mm256_add_epi32(_mm256_xor_si256(code, negative), more),
          _mm256_or_si256(is_between, is_end)};
}

void find_codes(const DynamicCodes& codec, const float* x, float inverse,
                std::uint8_t* __restrict codes) {
  const Pieces pieces = codec.pieces;
  const __m256 by = _mm256_set1_ps(inverse);
  unsigned doubtful = 0;  // a bit for sixteen numbers
  for (int i = 0; i < 128; i += 16) {
    const Found first = compute(pieces, _mm256_mul_ps(_mm256_loadu_ps(x + i), by));
    const Found second = compute(pieces, _mm256_mul_ps(_mm256_loadu_ps(x + i + 8), by));
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(first.codes, second.codes), 0xd8);
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
    const __m256i any = _mm256_or_si256(first.is_doubtful, second.is_doubtful);
    doubtful |= (_mm256_movemask_epi8(any) != 0 ? 1U : 0U) << (i / 16);
  }
  for (; doubtful != 0; doubtful &= doubtful - 1) {
    const int start = 16 * __builtin_ctz(doubtful);
    for (int i = start; i < start + 16; ++i) codes[i] = codec.nearest(x[i] * inverse);
  }
}

// Four counters a vector, in the low halves of 64 bits. Multiplication reads no high half, so they
// hold anything. Two vectors at once, because each round waits for the one before.
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
  for (int i = 0; i < kCalls; i += 8) {
    __m256i x[2], y[2], z[2], w[2];
    for (int k = 0; k < 2; ++k) {
      const int at = i + 4 * k;
      x[k] = load(a + at), y[k] = load(b + at), z[k] = load(c + at), w[k] = load(d + at);
    }
    __m256i key0 = _mm256_set1_epi32(static_cast<int>(key)),
            key1 = _mm256_set1_epi32(static_cast<int>(key >> 32));
    for (int round = 0; round < 10; ++round) {
      for (int k = 0; k < 2; ++k) {
        const __m256i first = _mm256_mul_epu32(x[k], first_factor);
        const __m256i second = _mm256_mul_epu32(z[k], second_factor);
        x[k] = _mm256_xor_si256(_mm256_srli_epi64(second, 32), _mm256_xor_si256(y[k], key0));
        z[k] = _mm256_xor_si256(_mm256_srli_epi64(first, 32), _mm256_xor_si256(w[k], key1));
        y[k] = second;
        w[k] = first;
      }
      key0 = _mm256_add_epi32(key0, first_step);
      key1 = _mm256_add_epi32(key1, second_step);
    }
    for (int k = 0; k < 2; ++k) {
      const int at = i + 4 * k;
      store(a + at, x[k]), store(b + at, y[k]), store(c + at, z[k]), store(d + at, w[k]);
    }
  }
}

}  // namespace
}  // namespace headroom::kernels::detail

#include "headroom/kernels/detail/step_loops.h"

namespace headroom::kernels::detail {

const StepLoops kStepAvx2 = kLoops;

}  // namespace headroom::kernels::detail
