#include "headroom/kernels/detail/isa.h"

#include <atomic>

#include "headroom/base/error.h"

namespace headroom::kernels {
namespace {

Isa best() {
  if (has(Isa::avx512)) return Isa::avx512;
  return has(Isa::avx2) ? Isa::avx2 : Isa::plain;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa{best()};
  return isa;
}

}  // namespace

bool has(Isa isa) {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == Isa::avx2) return avx2;
  if (isa == Isa::avx512)
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
  return isa == Isa::plain;
}

Isa isa_now() {
  return chosen().load(std::memory_order_relaxed);
}

IsaScope::IsaScope(Isa isa) : before_(isa_now()) {
  if (!has(isa)) throw UsageError("IsaScope", "expected instructions that this processor has");
  chosen() = isa;
}

IsaScope::~IsaScope() {
  chosen() = before_;
}

}  // namespace headroom::kernels
