// The loops of step_work.h, included by a source file for each instruction set. Before, the file
// defines
//   look_up(table, codes, scale, to)      to[i] = table[codes[i]] * scale, 128 numbers
//   find_codes(codec, x, inverse, codes)  codes[i] = the nearest code of x[i] * inverse, 128 numbers
//   philox_rounds(key, a, b, c, d)        the ten rounds of Philox for 32 counters
// in its anonymous namespace; the compiler makes vectors of the rest. Nothing here may call a
// function that another file could define, too.
#pragma once

#include "headroom/kernels/detail/round.h"
#include "headroom/kernels/detail/state_codes.h"
#include "headroom/kernels/detail/step_work.h"

namespace headroom::kernels::detail {
namespace {

constexpr int kPart = 128;  // numbers of a 4-bit block

// ---- Reading and writing a chunk as floats. What lies behind the tensor's end is 0.

int count_at(const Work& work, std::int64_t chunk) {
  const std::int64_t rest = work.count - chunk * kChunk;
  return rest < kChunk ? static_cast<int>(rest) : kChunk;
}

template <typename Number>
Number* at(const Numbers& numbers, std::int64_t chunk) {
  return static_cast<Number*>(numbers.data) + chunk * kChunk;
}

void read(const Numbers& numbers, std::int64_t chunk, int count, float* __restrict to) {
  if (count < kChunk)
    for (int i = 0; i < kChunk; ++i) to[i] = 0;
  if (numbers.type == Type::float32) {
    __builtin_memcpy(to, at<float>(numbers, chunk), static_cast<unsigned>(count) * sizeof(float));
  } else if (numbers.type == Type::bfloat16) {
    const auto* from = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_float(Bf16{from[i]});
  } else {
    const auto* from = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_float(Half{from[i]});
  }
}

// A whole chunk of floats stays where it is.
float* view(const Numbers& numbers, std::int64_t chunk, int count, float* buffer) {
  if (numbers.type == Type::float32 && count == kChunk) return at<float>(numbers, chunk);
  read(numbers, chunk, count, buffer);
  return buffer;
}

void write(const Numbers& numbers, std::int64_t chunk, int count, const float* __restrict from) {
  if (numbers.type == Type::float32) {
    float* const to = at<float>(numbers, chunk);
    if (to != from) __builtin_memcpy(to, from, static_cast<unsigned>(count) * sizeof(float));
  } else if (numbers.type == Type::bfloat16) {
    auto* __restrict to = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_bf16(from[i]).bits;
  } else {
    auto* __restrict to = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_half(from[i]).bits;
  }
}

void write_by(const Numbers& numbers, std::int64_t chunk, int count, const float* __restrict from,
              const std::uint16_t* __restrict random, Rounded what) {
  if (numbers.type == Type::bfloat16) {
    auto* __restrict to = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_bf16_by(from[i], mixed(random[i], what)).bits;
  } else {
    auto* __restrict to = at<std::uint16_t>(numbers, chunk);
    for (int i = 0; i < count; ++i) to[i] = to_half_by(from[i], mixed(random[i], what)).bits;
  }
}

// ---- Random bits

void draw(const Randomness& from, std::int64_t chunk, std::uint16_t* __restrict random) {
  std::uint32_t a[kCalls], b[kCalls], c[kCalls], d[kCalls];
  for (int i = 0; i < kCalls; ++i) {
    const Words words = counter_of(from, chunk, i);
    a[i] = words.word[0], b[i] = words.word[1], c[i] = words.word[2], d[i] = words.word[3];
  }
  philox_rounds(from.seed, a, b, c, d);
  const std::uint32_t* const words[] = {a, b, c, d};
  for (int word = 0; word < 4; ++word)
    for (int i = 0; i < kCalls; ++i) {
      random[word * 64 + i] = static_cast<std::uint16_t>(words[word][i]);
      random[word * 64 + 32 + i] = static_cast<std::uint16_t>(words[word][i] >> 16);
    }
}

// ---- A chunk: what the three steps share

struct Chunk {
  float *gradient, *parameter, *first, *second;  // in the tensors, or in these buffers
  int count;
  alignas(64) float buffers[4][kChunk];
  alignas(64) std::uint16_t random[kChunk];
};

void read_chunk(const Work& work, std::int64_t chunk, Chunk& now) {
  now.count = count_at(work, chunk);
  now.parameter = view(work.parameter, chunk, now.count, now.buffers[0]);
  now.gradient = view(work.gradient, chunk, now.count, now.buffers[1]);
  now.first = now.buffers[2];
  now.second = now.buffers[3];
  if (work.scale != nullptr) {
    const float scale = *work.scale;
    for (int i = 0; i < kChunk; ++i) now.gradient[i] = now.gradient[i] / scale;
    write(work.gradient, chunk, now.count, now.gradient);
  }
  if (work.stochastic) draw(work.random, chunk, now.random);
}

void write_chunk(const Work& work, const Numbers& numbers, std::int64_t chunk, const Chunk& now,
                 const float* from, Rounded what) {
  if (work.stochastic && numbers.type != Type::float32)
    write_by(numbers, chunk, now.count, from, now.random, what);
  else
    write(numbers, chunk, now.count, from);
}

void adamw(const Adamw& by, const float* __restrict gradient, float* __restrict parameter,
           float* __restrict first, float* __restrict second) {
  const Adamw factors = by;
  for (int i = 0; i < kChunk; ++i) update(factors, gradient[i], parameter[i], first[i], second[i]);
}

void sgd(const Sgd& by, const float* __restrict gradient, float* __restrict parameter,
         float* __restrict buffer) {
  const Sgd factors = by;
  for (int i = 0; i < kChunk; ++i) update(factors, gradient[i], parameter[i], buffer[i]);
}

void step_adamw(const Work& work, const Adamw& by, std::int64_t begin, std::int64_t end) {
  Chunk now;
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    read_chunk(work, chunk, now);
    now.first = view(work.first, chunk, now.count, now.first);
    now.second = view(work.second, chunk, now.count, now.second);
    adamw(by, now.gradient, now.parameter, now.first, now.second);
    write_chunk(work, work.parameter, chunk, now, now.parameter, Rounded::parameter);
    write_chunk(work, work.first, chunk, now, now.first, Rounded::first);
    write_chunk(work, work.second, chunk, now, now.second, Rounded::second);
  }
}

void step_sgd(const Work& work, const Sgd& by, std::int64_t begin, std::int64_t end) {
  Chunk now;
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    read_chunk(work, chunk, now);
    if (by.has_momentum)
      now.first = view(work.first, chunk, now.count, now.first);
    else
      __builtin_memset(now.first, 0, sizeof now.buffers[2]);
    sgd(by, now.gradient, now.parameter, now.first);
    write_chunk(work, work.parameter, chunk, now, now.parameter, Rounded::parameter);
    if (by.has_momentum) write_chunk(work, work.first, chunk, now, now.first, Rounded::first);
  }
}

// ---- Codes

float scale_of_block(const float* x, int count) {
  std::int32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::int32_t>(bits_of(x[i]) & 0x7fffffffU);
    largest = largest > magnitude ? largest : magnitude;
  }
  return scale_of(static_cast<std::uint32_t>(largest));
}

// 8 bit: a block of 256. 4 bit: two of 128, two codes a byte, the first one in the high half.
// `bytes` are those of the chunk that lie in the tensor.
void decode(const DynamicCodes& codec, int bits, const std::uint8_t* codes, const float* scales,
            int bytes, float* to) {
  std::uint8_t single[kChunk];
  if (bits == 4 || bytes < kChunk) {
    std::uint8_t packed[kChunk] = {};
    __builtin_memcpy(packed, codes, static_cast<unsigned>(bytes));
    if (bits == 8)
      __builtin_memcpy(single, packed, kChunk);
    else
      for (int i = 0; i < kPart; ++i) {
        single[2 * i] = static_cast<std::uint8_t>(packed[i] >> 4);
        single[2 * i + 1] = packed[i] & 15;
      }
    codes = single;
  }
  look_up(codec.value, codes, scales[0], to);
  look_up(codec.value, codes + kPart, scales[bits == 8 ? 0 : 1], to + kPart);
}

void encode(const DynamicCodes& codec, int bits, const float* from, std::uint8_t* codes,
            float* scales, int bytes) {
  std::uint8_t single[kChunk];
  std::uint8_t* const into = bits == 8 && bytes == kChunk ? codes : single;
  for (int part = 0; part < 2; ++part) {
    if (bits == 4)
      scales[part] = scale_of_block(from + part * kPart, kPart);
    else if (part == 0)
      scales[0] = scale_of_block(from, kChunk);
    find_codes(codec, from + part * kPart, 1 / scales[bits == 8 ? 0 : part], into + part * kPart);
  }
  if (into == codes) return;
  if (bits == 4)
    for (int i = 0; i < kPart; ++i)
      single[i] = static_cast<std::uint8_t>(single[2 * i] << 4 | single[2 * i + 1]);
  __builtin_memcpy(codes, single, static_cast<unsigned>(bytes));
}

void step_compact(const Work& work, const Compact& states, const Adamw& by, std::int64_t begin,
                  std::int64_t end) {
  const StateCodes codes = state_codes(states.bits);
  const int blocks = states.bits == 8 ? 1 : 2;  // of a chunk
  Chunk now;
  for (std::int64_t chunk = begin; chunk < end; ++chunk) {
    read_chunk(work, chunk, now);
    const int bytes = states.bits == 8 ? now.count : (now.count + 1) / 2;
    const std::int64_t code = chunk * kChunk * states.bits / 8;
    // The last block of 4-bit codes may be the chunk's first.
    const bool is_short = blocks == 2 && now.count <= kPart;
    float scales[2][2] = {};
    for (int block = 0; block < (is_short ? 1 : blocks); ++block) {
      scales[0][block] = states.first_scales[chunk * blocks + block];
      scales[1][block] = states.second_scales[chunk * blocks + block];
    }
    decode(codes.first, states.bits, states.first + code, scales[0], bytes, now.first);
    decode(codes.second, states.bits, states.second + code, scales[1], bytes, now.second);
    // Code 0 is no 0: what lies behind the end must not enter the scales.
    for (int i = now.count; i < kChunk; ++i) now.first[i] = now.second[i] = 0;
    adamw(by, now.gradient, now.parameter, now.first, now.second);
    write_chunk(work, work.parameter, chunk, now, now.parameter, Rounded::parameter);
    encode(codes.first, states.bits, now.first, states.first + code, scales[0], bytes);
    encode(codes.second, states.bits, now.second, states.second + code, scales[1], bytes);
    for (int block = 0; block < (is_short ? 1 : blocks); ++block) {
      states.first_scales[chunk * blocks + block] = scales[0][block];
      states.second_scales[chunk * blocks + block] = scales[1][block];
    }
  }
}

void nearest(const DynamicCodes& codec, const float* numbers, std::uint8_t* codes) {
  find_codes(codec, numbers, 1, codes);
  find_codes(codec, numbers + kPart, 1, codes + kPart);
}

constexpr StepLoops kLoops{step_adamw, step_compact, step_sgd, nearest};

}  // namespace
}  // namespace headroom::kernels::detail
