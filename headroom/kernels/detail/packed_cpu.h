// The kernels of packed matrices on the CPU, as a table with three implementations: plain C++, AVX2
// and AVX-512. All give the same bits. They run on the calling thread; operators.cpp divides the
// work.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/isa.h"
#include "headroom/kernels/detail/number.h"

namespace headroom::kernels {

struct PackedCpu {
  // `count` numbers, which begin with a block.
  void (*nf4_encode)(Number type, const void* numbers, std::int64_t count, std::uint8_t* codes,
                     float* scales);
  // Numbers `first` to `first + count` of the matrix.
  void (*nf4_decode)(const Nf4Memory& from, std::int64_t first, std::int64_t count, Number type,
                     void* numbers);
  void (*nest)(const float* scales, float offset, std::int64_t count, std::uint8_t* codes,
               float* nested_scales);
  // A row; returns its scale.
  float (*int8_encode)(Number type, const void* numbers, std::int64_t count, std::int8_t* codes);
  void (*int8_decode)(const std::int8_t* codes, float scale, std::int64_t count, Number type,
                      void* numbers);
};

extern const PackedCpu kPackedPlain;
#ifdef __x86_64__
extern const PackedCpu kPackedAvx2, kPackedAvx512;
#endif

// Those of isa_now().
[[nodiscard]] const PackedCpu& packed_cpu();

}  // namespace headroom::kernels
