// The loops without vectors of this CPU's own.
#include "headroom/kernels/detail/step_work.h"

namespace headroom::kernels::detail {
namespace {

void look_up(const float* table, const std::uint8_t* codes, float scale, float* __restrict to) {
  for (int i = 0; i < 128; ++i) to[i] = table[codes[i]] * scale;
}

void find_codes(const DynamicCodes& codec, const float* x, float inverse,
                std::uint8_t* __restrict codes) {
  for (int i = 0; i < 128; ++i) {
    const float share = x[i] * inverse;
    codes[i] = codec.nearest(share);
  }
}

void philox_rounds(std::uint64_t key, std::uint32_t* __restrict a, std::uint32_t* __restrict b,
                   std::uint32_t* __restrict c, std::uint32_t* __restrict d) {
  for (int i = 0; i < kCalls; ++i) {
    const Words words = philox({{a[i], b[i], c[i], d[i]}}, key);
    a[i] = words.word[0], b[i] = words.word[1], c[i] = words.word[2], d[i] = words.word[3];
  }
}

}  // namespace
}  // namespace headroom::kernels::detail

#include "headroom/kernels/detail/step_loops.h"

namespace headroom::kernels::detail {

const StepLoops kStepPlain = kLoops;

}  // namespace headroom::kernels::detail
