// The kernels without vectors of this CPU's own, and the choice among all.
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
