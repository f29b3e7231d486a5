#include "headroom/sim/detail/by_rules.h"

#include <ATen/ATen.h>
#include <ATen/CompositeImplicitAutogradFunctions.h>
#include <ATen/NativeFunctions.h>

#include "headroom/sim/detail/cards.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using OptionalType = std::optional<at::ScalarType>;

bool follows_cuda(const Tensor& x) {
  return card_at(x.device().index()).rules() == Rules::cuda;
}

// CUDA's kernel reads half and writes float; elsewhere there is a copy in float first.
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

// CUDA has a kernel for it; on the CPU it is made of others, whose results autograd keeps.
// Source: aten/src/ATen/native/layer_norm.cpp, rms_norm_symint and rms_norm_composite.
Tensor rms_norm(const Tensor& x, at::SymIntArrayRef shape, const std::optional<Tensor>& weight,
                std::optional<double> eps) {
  if (follows_cuda(x)) return at::compositeimplicitautograd::rms_norm_symint(x, shape, weight, eps);
  return std::get<0>(at::compositeimplicitautograd::_fused_rms_norm(
      x, C10_AS_INTARRAYREF_SLOW(shape), weight, eps));
}

void register_in(torch::Library& library) {
  library.impl("softmax.int", &softmax);
  library.impl("log_softmax.int", &log_softmax);
  library.impl("rms_norm", &rms_norm);
}

}  // namespace

void register_by_rules(torch::Library& aten) {
  register_in(aten);
  static torch::Library& differentiable = *new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  register_in(differentiable);
}

}  // namespace headroom::sim::detail
