#include "headroom/libtorch/set_data.h"

#include <ATen/core/VariableHooksInterface.h>

#include <mutex>
#include <typeinfo>

#include "headroom/libtorch/detail/carried.h"
#include "headroom/libtorch/detail/relocation.h"
#include "headroom/libtorch/versions.h"

namespace headroom::libtorch {
namespace {

using at::TensorBase;
using at::impl::VariableHooksInterface;

bool is_plain(const TensorBase& tensor) {
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return typeid(impl) == typeid(c10::TensorImpl) && impl.has_storage();
}

bool reaches_or_leaves_a_card(const TensorBase& tensor, const TensorBase& data) {
  return tensor.defined() && data.defined() && tensor.device() != data.device() &&
         (tensor.is_privateuseone() || data.is_privateuseone()) && is_plain(tensor) &&
         is_plain(data) && tensor.is_leaf();
}

// LibTorch's hooks with set_data replaced.
class Hooks final : public VariableHooksInterface {
 public:
  explicit Hooks(const VariableHooksInterface& own) : own_(own) {}

  void set_data(const TensorBase& tensor, const TensorBase& data) const override {
    const detail::SetDataScope carried(tensor, data);
    if (!reaches_or_leaves_a_card(tensor, data)) return own_.set_data(tensor, data);
    detail::Relocation gradient(data.device());
    gradient.add("the gradient", at::Tensor(tensor).grad());
    gradient.copy();
    own_.set_data(tensor, data);
    gradient.commit();
  }

  TensorBase tensor_data(const TensorBase& of) const override { return own_.tensor_data(of); }
  TensorBase variable_data(const TensorBase& of) const override { return own_.variable_data(of); }
  const NodePointer& grad_fn(const TensorBase& of) const override { return own_.grad_fn(of); }
  unsigned _register_hook(const TensorBase& of,
                          std::function<TensorBase(const TensorBase&)> hook) const override {
    return own_._register_hook(of, std::move(hook));
  }
  void remove_hook(const TensorBase& of, unsigned at) const override { own_.remove_hook(of, at); }
  bool is_view(const TensorBase& of) const override { return own_.is_view(of); }
  const TensorBase& base(const TensorBase& of) const override { return own_.base(of); }
  const std::string& name(const TensorBase& of) const override { return own_.name(of); }
  bool is_leaf(const TensorBase& of) const override { return own_.is_leaf(of); }
  std::int64_t output_nr(const TensorBase& of) const override { return own_.output_nr(of); }
  TensorBase data(const TensorBase& of) const override { return own_.data(of); }
  std::int64_t _version(const TensorBase& of) const override { return own_._version(of); }
  void retain_grad(const TensorBase& of) const override { own_.retain_grad(of); }
  bool retains_grad(const TensorBase& of) const override { return own_.retains_grad(of); }
  void _backward(const at::Tensor& of, at::TensorList inputs,
                 const std::optional<at::Tensor>& gradient, std::optional<bool> keep_graph,
                 bool create_graph) const override {
    own_._backward(of, inputs, gradient, keep_graph, create_graph);
  }
  void requires_grad_(const TensorBase& of, bool wanted) const override {
    own_.requires_grad_(of, wanted);
  }
  void basic_autograd_not_implemented_fallback(const c10::OperatorHandle& op,
                                               c10::DispatchKeySet keys,
                                               torch::jit::Stack* stack) const override {
    own_.basic_autograd_not_implemented_fallback(op, keys, stack);
  }
  std::optional<c10::ScalarType> grad_dtype(const TensorBase& of) const override {
    return own_.grad_dtype(of);
  }
  void set_grad_dtype(const TensorBase& of,
                      const std::optional<c10::ScalarType>& type) const override {
    own_.set_grad_dtype(of, type);
  }

 private:
  const VariableHooksInterface& own_;
};

}  // namespace

void install_set_data() {
  static std::once_flag flag;
  // Never deleted: tensors use it until the process ends.
  std::call_once(flag,
                 [] { at::impl::SetVariableHooks(new Hooks(*at::impl::GetVariableHooks())); });
}

}  // namespace headroom::libtorch
