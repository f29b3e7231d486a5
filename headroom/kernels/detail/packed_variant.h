// One implementation of the table in packed_cpu.h. A file that includes this is compiled with its
// own instructions. Before, in headroom::kernels' anonymous namespace, it may define quicker ways
// for some types than look_up() and whole_block() below.
//
// Everything here has internal linkage or is always inlined: a function that two of these files
// shared could run on a processor without the instructions of one. So no functions of std.
#pragma once

#include "headroom/kernels/detail/blocks.h"
#include "headroom/kernels/detail/packed_cpu.h"

namespace headroom::kernels {
namespace {

// Calls `work` with a pointer of the type.
template <typename Work>
[[gnu::always_inline]] inline void with_type(Number type, const void* numbers, const Work& work) {
  switch (type) {
    case Number::float32:
      return work(static_cast<const float*>(numbers));
    case Number::float64:
      return work(static_cast<const double*>(numbers));
    case Number::bf16:
      return work(static_cast<const Bf16*>(numbers));
    case Number::half:
      return work(static_cast<const Half*>(numbers));
  }
}
template <typename Work>
[[gnu::always_inline]] inline void with_type(Number type, void* numbers, const Work& work) {
  switch (type) {
    case Number::float32:
      return work(static_cast<float*>(numbers));
    case Number::float64:
      return work(static_cast<double*>(numbers));
    case Number::bf16:
      return work(static_cast<Bf16*>(numbers));
    case Number::half:
      return work(static_cast<Half*>(numbers));
  }
}

constexpr std::int64_t lesser(std::int64_t one, std::int64_t other) {
  return one < other ? one : other;
}

template <typename T>
std::uint32_t largest_of(const T* numbers, std::int64_t count) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t size = size_of(to_float(numbers[i]));
    largest = size > largest ? size : largest;
  }
  return largest;
}

// ---- NF4 ----

void write_halves(const std::uint32_t (&codes)[kNf4Block], std::int64_t bytes, std::uint8_t* to) {
  for (std::int64_t i = 0; i < bytes; ++i)
    to[i] = static_cast<std::uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
}

// Missing numbers of an incomplete block count as 0.
template <typename T>
float encode_block(const T* numbers, std::int64_t count, std::uint8_t* to) {
  float x[kNf4Block] = {};
  for (std::int64_t i = 0; i < count; ++i) x[i] = to_float(numbers[i]);
  const bool is_whole = count == kNf4Block;
  const float scale = nf4_scale(largest_of(x, kNf4Block), is_whole);
  const float factor = nf4_factor(scale);
  if (is_whole)
    for (float& number : x) number *= factor;
  else
    for (float& number : x) number /= scale;
  std::uint32_t codes[kNf4Block];
  for (int i = 0; i < kNf4Block; ++i) codes[i] = kNf4.nearest(x[i]);
  write_halves(codes, (count + 1) / 2, to);
  return scale;
}

void nf4_encode(Number type, const void* numbers, std::int64_t count, std::uint8_t* codes,
                float* scales) {
  with_type(type, numbers, [=](const auto* from) {
    for (std::int64_t at = 0; at < count; at += kNf4Block)
      scales[at / kNf4Block] =
          encode_block(from + at, lesser(kNf4Block, count - at), codes + at / 2);
  });
}

float scale_of(const Nf4Memory& from, std::int64_t block) {
  if (from.scales != nullptr) return from.scales[block];
  return unnested_scale(kSignedCodes.value[from.scale_codes[block]],
                        from.nested_scales[block / kNestedBlock], *from.offset);
}

// The numbers of the 16 codes. A function of its own, which compilers turn into a few vectors;
// inlined they take each number for itself.
template <typename T>
[[gnu::noinline]] void scaled_codes(float scale, T (&table)[16]) {
  for (int i = 0; i < 16; ++i) table[i] = From<T>::number(kNf4.value[i] * scale);
}

// The numbers of 32 bytes of codes, in order.
template <typename T>
void look_up(const T (&table)[16], const std::uint8_t* codes, T* numbers) {
  for (int i = 0; i < 32; ++i) {
    numbers[2 * i] = table[codes[i] >> 4];
    numbers[2 * i + 1] = table[codes[i] & 15];
  }
}

template <typename T>
void whole_block(float scale, const std::uint8_t* codes, T* numbers) {
  T table[16];
  scaled_codes(scale, table);
  look_up(table, codes, numbers);
}

// Numbers `begin` to `end` of the matrix, which lie in one block.
template <typename T>
void decode_block(const Nf4Memory& from, std::int64_t begin, std::int64_t end, T* numbers) {
  const float scale = scale_of(from, begin / kNf4Block);
  if (end - begin == kNf4Block) return whole_block(scale, from.codes + begin / 2, numbers);
  T table[16];
  scaled_codes(scale, table);
  for (std::int64_t at = begin; at < end; ++at)
    numbers[at - begin] = table[nf4_half(from.codes, at)];
}

void nf4_decode(const Nf4Memory& from, std::int64_t first, std::int64_t count, Number type,
                void* numbers) {
  with_type(type, numbers, [&](auto* to) {
    const std::int64_t last = first + count;
    for (std::int64_t begin = first, end = 0; begin < last; begin = end) {
      end = lesser((begin / kNf4Block + 1) * kNf4Block, last);
      decode_block(from, begin, end, to + (begin - first));
    }
  });
}

void nest(const float* scales, float offset, std::int64_t count, std::uint8_t* codes,
          float* nested_scales) {
  for (std::int64_t begin = 0; begin < count; begin += kNestedBlock) {
    const std::int64_t end = lesser(begin + kNestedBlock, count);
    std::uint32_t largest = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t size = size_of(scales[i] - offset);
      largest = size > largest ? size : largest;
    }
    const float scale = float_of(largest);
    nested_scales[begin / kNestedBlock] = scale;
    for (std::int64_t i = begin; i < end; ++i)
      codes[i] = nested_code(scales[i] - offset, scale, kSignedCodes);
  }
}

// ---- int8 ----

float int8_encode(Number type, const void* numbers, std::int64_t count, std::int8_t* codes) {
  float scale = 0;
  with_type(type, numbers, [&](const auto* from) {
    scale = float_of(largest_of(from, count));
    const float factor = int8_factor(scale);
    for (std::int64_t i = 0; i < count; ++i) codes[i] = int8_code(to_float(from[i]), factor);
  });
  return scale;
}

template <typename T>
void decode_row(const std::int8_t* codes, float scale, std::int64_t count, T* numbers) {
  for (std::int64_t i = 0; i < count; ++i)
    numbers[i] = From<T>::number(int8_number(codes[i], scale));
}

void int8_decode(const std::int8_t* codes, float scale, std::int64_t count, Number type,
                 void* numbers) {
  with_type(type, numbers, [=](auto* to) { decode_row(codes, scale, count, to); });
}

constexpr PackedCpu kVariant = {.nf4_encode = &nf4_encode,
                                .nf4_decode = &nf4_decode,
                                .nest = &nest,
                                .int8_encode = &int8_encode,
                                .int8_decode = &int8_decode};

}  // namespace
}  // namespace headroom::kernels
