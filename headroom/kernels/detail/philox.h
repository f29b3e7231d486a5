// Philox 4x32-10: four random words from a counter and a key. Source: Salmon et al., "Parallel
// Random Numbers: As Easy as 1, 2, 3", and Random123's philox.h, whose known answers the tests
// compare. One header for CPU and CUDA.
#pragma once

#include <cstdint>

#include "headroom/kernels/detail/portable.h"

namespace headroom::kernels::detail {

struct Words {
  std::uint32_t word[4];
};

HEADROOM_PORTABLE void philox_round(Words& counter, std::uint32_t key0, std::uint32_t key1) {
  const std::uint64_t first = std::uint64_t{0xD2511F53u} * counter.word[0];
  const std::uint64_t second = std::uint64_t{0xCD9E8D57u} * counter.word[2];
  const std::uint32_t a = static_cast<std::uint32_t>(second >> 32) ^ counter.word[1] ^ key0;
  const std::uint32_t c = static_cast<std::uint32_t>(first >> 32) ^ counter.word[3] ^ key1;
  counter = {{a, static_cast<std::uint32_t>(second), c, static_cast<std::uint32_t>(first)}};
}

HEADROOM_PORTABLE Words philox(Words counter, std::uint64_t key) {
  std::uint32_t key0 = static_cast<std::uint32_t>(key);
  std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    philox_round(counter, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// ---- The random bits of an optimizer's step
//
// Numbers of a tensor are taken in chunks of 256. Call `i` of a chunk, of 32, gives the 16 bits of
// eight of its numbers: those at i, i + 32, ..., i + 224, the low half of a word before its high
// half. So a vector of numbers takes its bits from a vector of calls.

inline constexpr int kChunk = 256, kCalls = 32;

struct Randomness {
  std::uint64_t seed;
  std::uint32_t step, tensor;
};

HEADROOM_PORTABLE Words counter_of(const Randomness& from, std::int64_t chunk, int call) {
  const std::uint64_t number =
      static_cast<std::uint64_t>(chunk) * kCalls + static_cast<unsigned>(call);
  return {{static_cast<std::uint32_t>(number), from.step, from.tensor,
           static_cast<std::uint32_t>(number >> 32)}};
}

}  // namespace headroom::kernels::detail
