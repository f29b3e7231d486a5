// Launches the kernels of packed matrices on a CUDA stream. No CUDA header, so that operators.cpp
// beside it and packed.cu agree without one. Each returns the runtime's error code, 0 for success.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/number.h"

struct CUstream_st;

namespace headroom::kernels::cuda {

// Part of a matrix in its own memory: `rows` x `columns`, whose rows begin `stride` numbers apart.
struct Tile {
  Number type;
  void* numbers;
  std::int64_t rows, columns, stride;
};

int nf4_encode(Number type, const void* numbers, std::int64_t count, std::uint8_t* codes,
               float* scales, CUstream_st* stream);
int nest(const float* scales, const float* offset, std::int64_t count, std::uint8_t* codes,
         float* nested_scales, CUstream_st* stream);
// `first`: the number of the matrix that the tile begins with. `columns`: the whole matrix's.
int nf4_decode(const Nf4Memory& from, std::int64_t first, std::int64_t columns, const Tile& tile,
               CUstream_st* stream);
int int8_encode(Number type, const void* numbers, std::int64_t rows, std::int64_t columns,
                std::int8_t* codes, float* scales, CUstream_st* stream);
// `codes` and `scales` of the tile's first row, `columns` as above.
int int8_decode(const std::int8_t* codes, const float* scales, std::int64_t columns,
                const Tile& tile, CUstream_st* stream);

// The runtime's words for an error code.
const char* words_of(int error);

}  // namespace headroom::kernels::cuda
