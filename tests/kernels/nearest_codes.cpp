// Every float from -1 to 1 gets its nearest code, in each table; and the same one by the loops for
// each instruction set that this processor has. `make nearest-codes`: three minutes.
#include <algorithm>
#include <array>
#include <cstdio>

#include "headroom/kernels/detail/codes.h"
#include "headroom/kernels/detail/isa.h"
#include "headroom/kernels/detail/state_codes.h"
#include "headroom/kernels/detail/step_work.h"
#include "tests/kernels/nearest.h"

namespace {

using namespace headroom::kernels;

constexpr std::uint32_t kOne = 0x3f800000;

long wrong_of(const DynamicCodes& codes, std::uint32_t sign, int count = 256) {
  long wrong = 0;
  for (std::uint32_t bits = 0; bits <= kOne; ++bits) {
    const float x = float_of(bits | sign);
    wrong += is_nearest(codes.value, count, codes.nearest(x), x) ? 0 : 1;
  }
  return wrong;
}

long wrong_of_nf4(std::uint32_t sign) {
  long wrong = 0;
  for (std::uint32_t bits = 0; bits <= kOne; ++bits) {
    const float x = float_of(bits | sign);
    wrong += is_nearest_nf4(kNf4.value, static_cast<int>(kNf4.nearest(x)), x) ? 0 : 1;
  }
  return wrong;
}

bool report(const char* table, long wrong) {
  std::printf("%-28s %ld of %u floats get another code than the nearest\n", table, wrong, kOne + 1);
  return wrong == 0;
}

long wrong_of_loops(const DynamicCodes& codes, std::uint32_t sign) {
  long wrong = 0;
  std::array<float, 256> numbers{};
  std::array<std::uint8_t, 256> found{};
  for (std::uint32_t first = 0; first <= kOne; first += 256) {
    for (std::uint32_t i = 0; i < 256; ++i) numbers[i] = float_of(std::min(first + i, kOne) | sign);
    detail::step_loops().nearest(codes, numbers.data(), found.data());
    for (std::size_t i = 0; i < 256; ++i) wrong += found[i] == codes.nearest(numbers[i]) ? 0 : 1;
  }
  return wrong;
}

bool report_loops(const char* name) {
  constexpr std::uint32_t kMinus = 0x80000000;
  const long of_8_bit = wrong_of_loops(kUnsignedCodes, 0) + wrong_of_loops(kSignedCodes, 0) +
                        wrong_of_loops(kSignedCodes, kMinus);
  const long of_4_bit = wrong_of_loops(detail::kUnsigned4, 0) +
                        wrong_of_loops(detail::kSigned4, 0) +
                        wrong_of_loops(detail::kSigned4, kMinus);
  std::printf("%-28s %ld floats get another code\n", name, of_8_bit + of_4_bit);
  return of_8_bit + of_4_bit == 0;
}

}  // namespace

int main() {
  constexpr std::uint32_t kMinus = 0x80000000;
  bool all = report("unsigned dynamic", wrong_of(kUnsignedCodes, 0));
  all &= report("signed dynamic, x >= 0", wrong_of(kSignedCodes, 0));
  all &= report("signed dynamic, x <= 0", wrong_of(kSignedCodes, kMinus));
  all &= report("unsigned, 4 bit", wrong_of(detail::kUnsigned4, 0, 16));
  all &= report("signed, 4 bit, x >= 0", wrong_of(detail::kSigned4, 0, 16));
  all &= report("signed, 4 bit, x <= 0", wrong_of(detail::kSigned4, kMinus, 16));
  all &= report("NF4, x >= 0", wrong_of_nf4(0));
  all &= report("NF4, x <= 0", wrong_of_nf4(kMinus));
  constexpr struct {
    Isa isa;
    const char* name;
  } kLoops[] = {{Isa::plain, "the plain loops"},
                {Isa::avx2, "those for AVX2"},
                {Isa::avx512, "those for AVX-512"}};
  for (const auto& [isa, name] : kLoops) {
    if (!has(isa)) continue;
    const IsaScope scope(isa);
    all &= report_loops(name);
  }
  return all ? 0 : 1;
}
