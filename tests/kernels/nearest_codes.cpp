// Every float from -1 to 1 gets its nearest code, in each table. `make nearest-codes`: a
// minute.
#include <cstdio>

#include "headroom/kernels/detail/codes.h"
#include "headroom/kernels/detail/state_codes.h"
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
  std::printf("%-22s %ld of %u floats get another code than the nearest\n", table, wrong, kOne + 1);
  return wrong == 0;
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
  return all ? 0 : 1;
}
