#include "headroom/libtorch/saved_tensors.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/detail/saved_hooks.h"

namespace headroom::libtorch {
namespace {

thread_local const SavedTensorScope* innermost_scope = nullptr;

}  // namespace

class detail::PackHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackHooks(const SavedTensorScope& scope) : scope_(&scope) {}

  // LibTorch calls this at once, while the scope is alive.
  void call_pack_hook(const at::Tensor& tensor) override {
    const SavedTensorScope& scope = *std::exchange(scope_, nullptr);
    const OuterScope outside(scope.before_);
    // A tensor with its graph would keep alive the node that saves it: a reference cycle.
    unpack_ = scope.pack_(tensor.requires_grad() ? tensor.detach() : tensor);
  }
  at::Tensor call_unpack_hook() override { return unpack_(); }

 private:
  const SavedTensorScope* scope_;
  Unpack unpack_;
};

std::unique_ptr<torch::autograd::SavedVariableHooks> detail::saved_variable_hooks() {
  if (innermost_scope == nullptr) return nullptr;
  return std::make_unique<PackHooks>(*innermost_scope);
}

SavedTensorScope::SavedTensorScope(Pack pack)
    : pack_(std::move(pack)), before_(std::exchange(innermost_scope, this)) {
  if (install_engine()) return;
  innermost_scope = before_;
  throw UnavailableError(expectation(
      "SavedTensorScope", "LibTorch's own autograd engine, or Headroom's",
      "another, such as Python's", "torch.autograd.graph.saved_tensors_hooks in Python"));
}

SavedTensorScope::~SavedTensorScope() {
  innermost_scope = before_;
}

const SavedTensorScope* SavedTensorScope::innermost() {
  return innermost_scope;
}

OuterScope::OuterScope(const SavedTensorScope* outer)
    : before_(std::exchange(innermost_scope, outer)) {}
OuterScope::~OuterScope() {
  innermost_scope = before_;
}

}  // namespace headroom::libtorch
