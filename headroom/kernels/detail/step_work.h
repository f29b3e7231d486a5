// One tensor's part of a step on the CPU, and the loops over it, compiled for each instruction set.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/codes.h"
#include "headroom/kernels/detail/philox.h"
#include "headroom/kernels/detail/update.h"

namespace headroom::kernels::detail {

enum class Type : std::uint8_t { float32, bfloat16, float16 };

struct Numbers {
  void* data;
  Type type;
};

struct Work {
  std::int64_t count;
  Numbers parameter, gradient, first, second;  // the states; SGD's buffer is the first
  const float* scale;  // the gradients are too large by it; they are written back without it
  bool stochastic;
  Randomness random;
};

// Codes in 8 bit with a scale for 256 numbers, or in 4 bit with one for 128.
struct Compact {
  int bits;
  std::uint8_t *first, *second;
  float *first_scales, *second_scales;
};

// Each steps the chunks from `begin` to `end`. The results are the same for each instruction set.
struct StepLoops {
  void (*adamw)(const Work&, const Adamw&, std::int64_t begin, std::int64_t end);
  void (*compact_adamw)(const Work&, const Compact&, const Adamw&, std::int64_t begin,
                        std::int64_t end);
  void (*sgd)(const Work&, const Sgd&, std::int64_t begin, std::int64_t end);
  // 256 numbers in [-1, 1].
  void (*nearest)(const DynamicCodes&, const float* numbers, std::uint8_t* codes);
};

extern const StepLoops kStepPlain, kStepAvx2, kStepAvx512;

// Those of isa_now().
[[nodiscard]] const StepLoops& step_loops();

}  // namespace headroom::kernels::detail
