#include "headroom/sim/dispatch/registration.h"

#include <ATen/ATen.h>
#include <ATen/CompositeImplicitAutogradFunctions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TracerMode.h>

#include "headroom/sim/device/cards.h"
#include "headroom/sim/dispatch/execute.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using OptionalType = std::optional<at::ScalarType>;

bool follows_cuda(const Tensor& x) {
  return card_at(x.device().index()).rules() == Rules::cuda;
}

// CUDA's kernel reads half and writes float; other devices first copy to float.
// Source: aten/src/ATen/native/SoftMax.cpp, softmax and log_softmax.
bool converts_on_the_way(const Tensor& x, OptionalType type) {
  return x.scalar_type() == at::kHalf && type == at::kFloat && follows_cuda(x);
}

Tensor softmax(const Tensor& x, std::int64_t dim, OptionalType type) {
  return converts_on_the_way(x, type) ? at::_softmax(x, dim, true)
                                      : at::native::softmax(x, dim, type);
}

Tensor log_softmax(const Tensor& x, std::int64_t dim, OptionalType type) {
  return converts_on_the_way(x, type) ? at::_log_softmax(x, dim, true)
                                      : at::native::log_softmax(x, dim, type);
}

// CUDA has one kernel for it; the CPU composes it of operators whose results autograd keeps.
// Source: aten/src/ATen/native/layer_norm.cpp, rms_norm_symint and rms_norm_composite.
Tensor rms_norm(const Tensor& x, at::SymIntArrayRef shape, const std::optional<Tensor>& weight,
                std::optional<double> eps) {
  if (follows_cuda(x)) return at::compositeimplicitautograd::rms_norm_symint(x, shape, weight, eps);
  return std::get<0>(at::compositeimplicitautograd::_fused_rms_norm(
      x, C10_AS_INTARRAYREF_SLOW(shape), weight, eps));
}

// torch.jit.trace does not record convolution, but the operator that the CPU makes of it,
// `_convolution` with cuDNN's switches. A rule's allocations would be recorded in its place.
void convolution(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (!at::tracer::impl::is_dispatch_enabled()) return execute(op, stack);
  static const c10::OperatorHandle recorded =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  const bool benchmark = false, deterministic = false, enabled = true, tf32 = true;
  for (const bool cudnn : {benchmark, deterministic, enabled, tf32}) stack->emplace_back(cudnn);
  recorded.callBoxed(stack);
}

// Behind this name LibTorch would look for the device's own convolution kernel.
Tensor traced_convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                          at::SymIntArrayRef stride, at::SymIntArrayRef padding,
                          at::SymIntArrayRef dilation, bool transposed,
                          at::SymIntArrayRef output_padding, c10::SymInt groups, bool, bool, bool,
                          bool) {
  return at::convolution_symint(x, weight, bias, stride, padding, dilation, transposed,
                                output_padding, std::move(groups));
}

void register_in(torch::Library& routes) {
  routes.impl("_convolution", &traced_convolution);
  routes.impl("softmax.int", &softmax);
  routes.impl("log_softmax.int", &log_softmax);
  routes.impl("rms_norm", &rms_norm);
}

}  // namespace

void register_composite_routes(torch::Library& aten) {
  aten.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  register_in(aten);
  register_in(library(c10::DispatchKey::AutogradPrivateUse1));
}

}  // namespace headroom::sim::detail
