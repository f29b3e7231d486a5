#include <cstdint>

namespace headroom::kernels {
namespace {

template <typename T>
void look_up(const T (&table)[16], const std::uint8_t* codes, T* numbers) {
  for (int i = 0; i < 32; ++i) {
    numbers[2 * i] = table[codes[i] >> 4];
    numbers[2 * i + 1] = table[codes[i] & 15];
  }
}

}  // namespace
}  // namespace headroom::kernels

#include "headroom/kernels/detail/packed_variant.h"

namespace headroom::kernels {

const PackedCpu kPackedPlain = kVariant;

const PackedCpu& packed_cpu() {
#ifdef __x86_64__
  switch (isa_now()) {
    case Isa::avx512:
      return kPackedAvx512;
    case Isa::avx2:
      return kPackedAvx2;
    case Isa::plain:
      break;
  }
#endif
  return kPackedPlain;
}

}  // namespace headroom::kernels
