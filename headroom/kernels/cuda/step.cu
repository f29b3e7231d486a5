// The kernels of optimizer steps: indexing here, arithmetic in detail/update.h, round.h and
// philox.h.
#include "headroom/kernels/cuda/step.h"
#include "headroom/kernels/detail/round.h"
#include "headroom/kernels/detail/state_codes.h"

namespace headroom::kernels::cuda {
namespace {

using detail::Adamw;
using detail::Compact;
using detail::kCalls;
using detail::kChunk;
using detail::Numbers;
using detail::Rounded;
using detail::Sgd;
using detail::Type;
using detail::Words;
using detail::Work;

constexpr int kWarp = 32, kPart = 128;
constexpr std::int64_t kMostBlocks = 4096;  // each takes every so many chunks
constexpr unsigned kAll = 0xffffffffU;

__device__ const DynamicCodes state_tables[4] = {kSignedCodes, kUnsignedCodes, detail::kSigned4,
                                                 detail::kUnsigned4};

// ---- A number of a chunk, by a thread of its own

__device__ float read(const Numbers& numbers, std::int64_t at) {
  if (numbers.type == Type::float32) return static_cast<const float*>(numbers.data)[at];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(numbers.data)[at];
  return numbers.type == Type::bfloat16 ? to_float(Bf16{bits}) : to_float(Half{bits});
}

__device__ void write(const Numbers& numbers, std::int64_t at, float x) {
  if (numbers.type == Type::float32)
    static_cast<float*>(numbers.data)[at] = x;
  else
    static_cast<std::uint16_t*>(numbers.data)[at] =
        numbers.type == Type::bfloat16 ? to_bf16(x).bits : to_half(x).bits;
}

__device__ void write(const Work& work, const Numbers& numbers, std::int64_t at, float x,
                      std::uint32_t random, Rounded what) {
  if (!work.stochastic || numbers.type == Type::float32) return write(numbers, at, x);
  const std::uint32_t bits = detail::mixed(random, what);
  static_cast<std::uint16_t*>(numbers.data)[at] = numbers.type == Type::bfloat16
                                                      ? detail::to_bf16_by(x, bits).bits
                                                      : detail::to_half_by(x, bits).bits;
}

// The thread's 16 bits. All threads of the block call it.
__device__ std::uint32_t draw(const Work& work, std::uint32_t step, std::int64_t chunk) {
  __shared__ std::uint32_t words[4][kCalls];
  if (!work.stochastic) return 0;
  __syncthreads();
  if (threadIdx.x < kCalls) {
    detail::Randomness from = work.random;
    from.step = step;
    const int call = static_cast<int>(threadIdx.x);
    const Words drawn = detail::philox(detail::counter_of(from, chunk, call), from.seed);
    for (int i = 0; i < 4; ++i) words[i][call] = drawn.word[i];
  }
  __syncthreads();
  const std::uint32_t word = words[threadIdx.x / 64][threadIdx.x % kCalls];
  return threadIdx.x / kCalls % 2 == 0 ? word & 0xffffU : word >> 16;
}

__device__ float gradient_at(const Work& work, std::int64_t at) {
  const float gradient = read(work.gradient, at);
  if (work.scale == nullptr) return gradient;
  const float unscaled = gradient / *work.scale;
  write(work.gradient, at, unscaled);
  return unscaled;
}

__device__ bool is_skipped(const OnDevice& on) {
  return on.not_finite != nullptr && *on.not_finite == 1;
}

__device__ std::uint32_t step_of(const OnDevice& on) {
  return on.step == nullptr ? 0 : static_cast<std::uint32_t>(*on.step);
}

// AdamW's factors, computed once a block.
__device__ const Adamw& factors_of(const AdamwFactors& factors, std::uint32_t step) {
  __shared__ Adamw by;
  if (threadIdx.x == 0) by = detail::adamw_of(factors, step);
  __syncthreads();
  return by;
}

// ---- Steps

__global__ void step_adamw(const Work work, const AdamwFactors factors, const OnDevice on) {
  if (is_skipped(on)) return;
  const std::uint32_t step = step_of(on);
  const Adamw by = factors_of(factors, step);
  for (std::int64_t chunk = blockIdx.x; chunk * kChunk < work.count; chunk += gridDim.x) {
    const std::uint32_t random = draw(work, step, chunk);
    const std::int64_t at = chunk * kChunk + threadIdx.x;
    if (at >= work.count) continue;
    float parameter = read(work.parameter, at), first = read(work.first, at);
    float second = read(work.second, at);
    detail::update(by, gradient_at(work, at), parameter, first, second);
    write(work, work.parameter, at, parameter, random, Rounded::parameter);
    write(work, work.first, at, first, random, Rounded::first);
    write(work, work.second, at, second, random, Rounded::second);
  }
}

__global__ void step_sgd(const Work work, const Sgd by, const OnDevice on) {
  if (is_skipped(on)) return;
  const std::uint32_t step = step_of(on);
  for (std::int64_t chunk = blockIdx.x; chunk * kChunk < work.count; chunk += gridDim.x) {
    const std::uint32_t random = draw(work, step, chunk);
    const std::int64_t at = chunk * kChunk + threadIdx.x;
    if (at >= work.count) continue;
    float parameter = read(work.parameter, at);
    float buffer = by.has_momentum ? read(work.first, at) : 0.0F;
    detail::update(by, gradient_at(work, at), parameter, buffer);
    write(work, work.parameter, at, parameter, random, Rounded::parameter);
    if (by.has_momentum) write(work, work.first, at, buffer, random, Rounded::first);
  }
}

// The scale of the thread's block of numbers: 256 in 8 bit, its half of them in 4 bit.
__device__ float scale_of_block(float x, int bits) {
  __shared__ std::uint32_t of_warps[kChunk / kWarp];
  std::uint32_t largest = bits_of(x) & 0x7fffffffU;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, largest, step);
    largest = other > largest ? other : largest;
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  const int first = bits == 4 ? static_cast<int>(threadIdx.x / kPart) * (kPart / kWarp) : 0;
  const int count = bits == 4 ? kPart / kWarp : kChunk / kWarp;
  for (int i = first; i < first + count; ++i)
    largest = of_warps[i] > largest ? of_warps[i] : largest;
  return detail::scale_of(largest);
}

__device__ float decode(const DynamicCodes& table, int bits, const std::uint8_t* codes,
                        std::int64_t at, float scale) {
  if (bits == 8) return table.value[codes[at]] * scale;
  const std::uint8_t two = codes[at / 2];
  return table.value[at % 2 == 0 ? two >> 4 : two & 15] * scale;
}

// Two threads share a byte of 4-bit codes. All threads of the block call it.
__device__ void encode(const DynamicCodes& table, int bits, float x, std::uint8_t* codes,
                       float* scales, std::int64_t at, std::int64_t count) {
  const float scale = scale_of_block(x, bits);
  const std::uint32_t code = table.nearest(x * (1 / scale));
  const std::uint32_t next = __shfl_down_sync(kAll, code, 1);
  if (at >= count) return;
  if (bits == 8)
    codes[at] = static_cast<std::uint8_t>(code);
  else if (at % 2 == 0)
    codes[at / 2] = static_cast<std::uint8_t>(code << 4 | next);
  const int block = bits == 8 ? kChunk : kPart;
  if (at % block == 0) scales[at / block] = scale;
}

// The two tables, copied once a block.
struct Tables {
  DynamicCodes first, second;
};

__device__ void copy_tables(Tables& to, int bits) {
  const auto* const from =
      reinterpret_cast<const std::uint32_t*>(state_tables + (bits == 8 ? 0 : 2));
  auto* const into = reinterpret_cast<std::uint32_t*>(&to);
  for (unsigned i = threadIdx.x; i < sizeof(Tables) / 4; i += kChunk) into[i] = from[i];
  __syncthreads();
}

__global__ void step_compact(const Work work, const Compact states, const AdamwFactors factors,
                             const OnDevice on) {
  if (is_skipped(on)) return;
  __shared__ Tables tables;
  copy_tables(tables, states.bits);
  const std::uint32_t step = step_of(on);
  const Adamw by = factors_of(factors, step);
  for (std::int64_t chunk = blockIdx.x; chunk * kChunk < work.count; chunk += gridDim.x) {
    const std::uint32_t random = draw(work, step, chunk);
    const std::int64_t at = chunk * kChunk + threadIdx.x,
                       block = at / (states.bits == 8 ? kChunk : kPart);
    float parameter = 0, first = 0, second = 0;
    if (at < work.count) {
      parameter = read(work.parameter, at);
      first = decode(tables.first, states.bits, states.first, at, states.first_scales[block]);
      second = decode(tables.second, states.bits, states.second, at, states.second_scales[block]);
      detail::update(by, gradient_at(work, at), parameter, first, second);
      write(work, work.parameter, at, parameter, random, Rounded::parameter);
    }
    // Its barriers lie between the last read of a scale or a code and the first write.
    encode(tables.first, states.bits, first, states.first, states.first_scales, at, work.count);
    encode(tables.second, states.bits, second, states.second, states.second_scales, at, work.count);
  }
}

unsigned blocks_for(const Work& work) {
  const std::int64_t chunks = (work.count + kChunk - 1) / kChunk;
  return static_cast<unsigned>(chunks < kMostBlocks ? chunks : kMostBlocks);
}

}  // namespace

int adamw(const Work& work, const AdamwFactors& factors, const OnDevice& on, CUstream_st* stream) {
  step_adamw<<<blocks_for(work), kChunk, 0, stream>>>(work, factors, on);
  return static_cast<int>(cudaGetLastError());
}

int compact_adamw(const Work& work, const Compact& states, const AdamwFactors& factors,
                  const OnDevice& on, CUstream_st* stream) {
  step_compact<<<blocks_for(work), kChunk, 0, stream>>>(work, states, factors, on);
  return static_cast<int>(cudaGetLastError());
}

int sgd(const Work& work, const Sgd& by, const OnDevice& on, CUstream_st* stream) {
  step_sgd<<<blocks_for(work), kChunk, 0, stream>>>(work, by, on);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace headroom::kernels::cuda
