#include "headroom/libtorch/saved_tensors.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/detail/saved_hooks.h"

namespace headroom::libtorch {
namespace {

thread_local const Pack* innermost = nullptr;

class PackHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackHooks(const Pack& pack) : pack_(&pack) {}

  // LibTorch calls this at once, while the scope is alive.
  void call_pack_hook(const at::Tensor& tensor) override {
    const Pack& pack = *std::exchange(pack_, nullptr);
    // A tensor with its graph would keep alive the node that saves it: a reference cycle.
    unpack_ = pack(tensor.requires_grad() ? tensor.detach() : tensor);
  }
  at::Tensor call_unpack_hook() override { return unpack_(); }

 private:
  const Pack* pack_;
  Unpack unpack_;
};

}  // namespace

std::unique_ptr<torch::autograd::SavedVariableHooks> detail::saved_variable_hooks() {
  // An empty Pack disables the hooks in its scope.
  if (innermost == nullptr || !*innermost) return nullptr;
  return std::make_unique<PackHooks>(*innermost);
}

SavedTensorScope::SavedTensorScope(Pack pack)
    : pack_(std::move(pack)), before_(std::exchange(innermost, &pack_)) {
  if (install_engine()) return;
  innermost = before_;
  throw UnavailableError(expectation(
      "SavedTensorScope", "LibTorch's own autograd engine, or Headroom's",
      "another, such as Python's", "torch.autograd.graph.saved_tensors_hooks in Python"));
}

SavedTensorScope::~SavedTensorScope() {
  innermost = before_;
}

}  // namespace headroom::libtorch
