#include "headroom/sim/detail/attention.h"

#include <ATen/ATen.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace headroom::sim::detail {
namespace {

using at::Tensor;

std::int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value,
                    const std::optional<Tensor>& mask, double dropout, bool causal,
                    std::optional<double> scale, bool grouped) {
  (void)query, (void)key, (void)value, (void)mask, (void)dropout, (void)causal, (void)scale;
  (void)grouped;
  return static_cast<std::int64_t>(sdp::SDPBackend::overrideable);
}

}  // namespace

void register_attention(torch::Library& aten) {
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose);
  aten.impl("_fused_sdp_choice", &choose);
}

}  // namespace headroom::sim::detail
