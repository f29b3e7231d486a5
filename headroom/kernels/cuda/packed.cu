// The kernels of packed matrices: indexing here, arithmetic in detail/blocks.h.
#include "headroom/kernels/cuda/packed.h"
#include "headroom/kernels/detail/blocks.h"

namespace headroom::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;
constexpr int kUnit = 8;  // numbers of one row that a thread unpacks
constexpr unsigned kAll = 0xffffffffU;

__constant__ Nf4Codes nf4_codes = make_nf4_codes();
__constant__ DynamicCodes signed_codes = make_dynamic_codes(true);

unsigned divided_up(std::int64_t count, std::int64_t by) {
  return static_cast<unsigned>((count + by - 1) / by);
}

// ---- Packing ----

__device__ std::uint32_t largest_of_warp(std::uint32_t size) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, size, step);
    size = other > size ? other : size;
  }
  return size;
}

// For all threads of the block, which is of kThreads.
__device__ std::uint32_t largest_of_threads(std::uint32_t size) {
  __shared__ std::uint32_t of_warps[kThreads / kWarp];
  size = largest_of_warp(size);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = size;
  __syncthreads();
  return largest_of_warp(of_warps[threadIdx.x % (kThreads / kWarp)]);
}

// A warp packs a block: each thread two numbers, which are a byte.
template <typename T>
__global__ void encode_nf4(const T* numbers, std::int64_t count, std::uint8_t* codes,
                           float* scales) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t block = thread / kWarp, at = thread * 2;
  if (block * kNf4Block >= count) return;
  float x = at < count ? to_float(numbers[at]) : 0.0F;
  float y = at + 1 < count ? to_float(numbers[at + 1]) : 0.0F;
  const std::uint32_t one = size_of(x), other = size_of(y);
  const bool is_whole = (block + 1) * kNf4Block <= count;
  const float scale = nf4_scale(largest_of_warp(one > other ? one : other), is_whole);
  const float factor = nf4_factor(scale);
  x = is_whole ? x * factor : x / scale;
  y = is_whole ? y * factor : y / scale;
  if (at < count)
    codes[thread] = static_cast<std::uint8_t>(nf4_codes.nearest(x) << 4 | nf4_codes.nearest(y));
  if (thread % kWarp == 0) scales[block] = scale;
}

// Each block of threads has the scales of one nested scale.
__global__ void nest_scales(const float* scales, const float* offset, std::int64_t count,
                            std::uint8_t* codes, float* nested_scales) {
  static_assert(kThreads == kNestedBlock);
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const float difference = at < count ? scales[at] - *offset : 0.0F;
  const float nested_scale = float_of(largest_of_threads(size_of(difference)));
  if (at < count) codes[at] = nested_code(difference, nested_scale, signed_codes);
  if (threadIdx.x == 0) nested_scales[blockIdx.x] = nested_scale;
}

// Each block of threads has a row.
template <typename T>
__global__ void encode_int8(const T* numbers, std::int64_t columns, std::int8_t* codes,
                            float* scales) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * columns;
  std::uint32_t largest = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads) {
    const std::uint32_t size = size_of(to_float(numbers[first + i]));
    largest = size > largest ? size : largest;
  }
  const float scale = float_of(largest_of_threads(largest)), factor = int8_factor(scale);
  for (std::int64_t i = threadIdx.x; i < columns; i += kThreads)
    codes[first + i] = int8_code(to_float(numbers[first + i]), factor);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// ---- Unpacking ----

template <typename T>
struct Unit {
  T numbers[kUnit];
};

// By 16 bytes a store, which nvcc does not find by itself.
template <typename T>
__device__ void store(const Unit<T>& unit, T* to) {
  struct Words {
    uint4 words[sizeof(Unit<T>) / sizeof(uint4)];
  };
  const auto all = __builtin_bit_cast(Words, unit);
  for (const uint4& word : all.words)
    __stcg(reinterpret_cast<uint4*>(to) + (&word - all.words), word);
}

// A thread writes one unit of a row, or what is left of the row. Aligned: all units are whole and
// lie at multiples of 16 bytes.
template <bool kAligned, typename T, typename Decode>
__device__ void write_units(T* tile, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                            const Decode& decode) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (column >= columns) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    T* const to = tile + row * stride + column;
    if constexpr (kAligned) {
      store(decode.unit(row, column), to);
    } else {
      for (int i = 0; i < kUnit && column + i < columns; ++i)
        to[i] = decode.number(row, column + i);
    }
  }
}

template <typename T>
struct Nf4Decode {
  Nf4Memory from;
  std::int64_t first, columns;
  const float* table;  // shared memory: lanes look at different codes

  __device__ float scale_of(std::int64_t at) const {
    const std::int64_t block = at / kNf4Block;
    if (from.scales != nullptr) return from.scales[block];
    return unnested_scale(signed_codes.value[from.scale_codes[block]],
                          from.nested_scales[block / kNestedBlock], *from.offset);
  }
  __device__ T number(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = first + row * columns + column;
    return From<T>::number(table[nf4_half(from.codes, at)] * scale_of(at));
  }
  __device__ Unit<T> unit(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = first + row * columns + column;
    const std::uint32_t bytes = *reinterpret_cast<const std::uint32_t*>(from.codes + at / 2);
    const float scale = scale_of(at);
    Unit<T> unit;
    for (int i = 0; i < kUnit; ++i) {
      const int shift = i / 2 * 8 + (i % 2 == 0 ? 4 : 0);
      unit.numbers[i] = From<T>::number(table[bytes >> shift & 15U] * scale);
    }
    return unit;
  }
};

template <bool kAligned, typename T>
__global__ void decode_nf4(Nf4Memory from, std::int64_t first, std::int64_t matrix_columns, T* tile,
                           std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  __shared__ float table[16];
  if (threadIdx.x < 16) table[threadIdx.x] = nf4_codes.value[threadIdx.x];
  __syncthreads();
  write_units<kAligned>(tile, rows, columns, stride,
                        Nf4Decode<T>{from, first, matrix_columns, table});
}

template <typename T>
struct Int8Decode {
  const std::int8_t* codes;
  const float* scales;
  std::int64_t columns;

  __device__ T number(std::int64_t row, std::int64_t column) const {
    return From<T>::number(int8_number(codes[row * columns + column], scales[row]));
  }
  __device__ Unit<T> unit(std::int64_t row, std::int64_t column) const {
    const auto bytes = *reinterpret_cast<const std::uint64_t*>(codes + row * columns + column);
    const float scale = scales[row];
    Unit<T> unit;
    for (int i = 0; i < kUnit; ++i)
      unit.numbers[i] =
          From<T>::number(int8_number(static_cast<std::int8_t>(bytes >> (8 * i) & 0xffU), scale));
    return unit;
  }
};

template <bool kAligned, typename T>
__global__ void decode_int8(const std::int8_t* codes, const float* scales,
                            std::int64_t matrix_columns, T* tile, std::int64_t rows,
                            std::int64_t columns, std::int64_t stride) {
  write_units<kAligned>(tile, rows, columns, stride, Int8Decode<T>{codes, scales, matrix_columns});
}

// ---- Launches ----

template <typename T>
struct Type {
  using type = T;
};

// Calls `work(Type<T>())` and answers whether it could be launched.
template <typename Work>
int with_type(Number type, const Work& work) {
  switch (type) {
    case Number::float32:
      work(Type<float>());
      break;
    case Number::float64:
      work(Type<double>());
      break;
    case Number::bf16:
      work(Type<Bf16>());
      break;
    case Number::half:
      work(Type<Half>());
      break;
  }
  return static_cast<int>(cudaGetLastError());
}

dim3 grid_of(const Tile& tile) {
  constexpr std::int64_t kMostRows = 65535;
  return dim3(divided_up(tile.columns, std::int64_t{kThreads} * kUnit),
              static_cast<unsigned>(tile.rows < kMostRows ? tile.rows : kMostRows));
}

bool is_multiple(const void* pointer, std::uintptr_t of) {
  return reinterpret_cast<std::uintptr_t>(pointer) % of == 0;
}

template <typename T>
bool is_aligned(const Tile& tile) {
  constexpr std::int64_t kNumbers = 16 / sizeof(T);
  return is_multiple(tile.numbers, 16) && tile.columns % kUnit == 0 && tile.stride % kNumbers == 0;
}

}  // namespace

int nf4_encode(Number type, const void* numbers, std::int64_t count, std::uint8_t* codes,
               float* scales, CUstream_st* stream) {
  return with_type(type, [&](auto of) {
    using T = typename decltype(of)::type;
    encode_nf4<<<divided_up(count, 2 * kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(numbers), count, codes, scales);
  });
}

int nest(const float* scales, const float* offset, std::int64_t count, std::uint8_t* codes,
         float* nested_scales, CUstream_st* stream) {
  nest_scales<<<divided_up(count, kThreads), kThreads, 0, stream>>>(scales, offset, count, codes,
                                                                    nested_scales);
  return static_cast<int>(cudaGetLastError());
}

int nf4_decode(const Nf4Memory& from, std::int64_t first, std::int64_t columns, const Tile& tile,
               CUstream_st* stream) {
  const bool begins_units =
      first % kUnit == 0 && columns % kUnit == 0 && is_multiple(from.codes, 4);
  return with_type(tile.type, [&](auto of) {
    using T = typename decltype(of)::type;
    const auto kernel =
        begins_units && is_aligned<T>(tile) ? decode_nf4<true, T> : decode_nf4<false, T>;
    kernel<<<grid_of(tile), kThreads, 0, stream>>>(
        from, first, columns, static_cast<T*>(tile.numbers), tile.rows, tile.columns, tile.stride);
  });
}

int int8_encode(Number type, const void* numbers, std::int64_t rows, std::int64_t columns,
                std::int8_t* codes, float* scales, CUstream_st* stream) {
  return with_type(type, [&](auto of) {
    using T = typename decltype(of)::type;
    encode_int8<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
        static_cast<const T*>(numbers), columns, codes, scales);
  });
}

int int8_decode(const std::int8_t* codes, const float* scales, std::int64_t columns,
                const Tile& tile, CUstream_st* stream) {
  const bool begins_units = columns % kUnit == 0 && is_multiple(codes, kUnit);
  return with_type(tile.type, [&](auto of) {
    using T = typename decltype(of)::type;
    const auto kernel =
        begins_units && is_aligned<T>(tile) ? decode_int8<true, T> : decode_int8<false, T>;
    kernel<<<grid_of(tile), kThreads, 0, stream>>>(codes, scales, columns,
                                                   static_cast<T*>(tile.numbers), tile.rows,
                                                   tile.columns, tile.stride);
  });
}

const char* words_of(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace headroom::kernels::cuda
