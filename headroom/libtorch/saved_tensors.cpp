#include "headroom/libtorch/saved_tensors.h"

#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/autograd_engine.h"
#include "headroom/libtorch/detail/saved_hooks.h"

namespace headroom::libtorch {
namespace {

thread_local const SavedTensorScope* innermost = nullptr;

// Makes another scope the innermost for a while.
class Within {
 public:
  explicit Within(const SavedTensorScope* scope) : before_(std::exchange(innermost, scope)) {}
  ~Within() { innermost = before_; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  const SavedTensorScope* before_;
};

}  // namespace

class detail::PackHooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit PackHooks(const SavedTensorScope& scope) : scope_(&scope) {}
  // An empty Pack disables the hooks in its scope.
  static bool has(const SavedTensorScope* scope) { return scope != nullptr && scope->pack_; }

  // LibTorch calls this at once, while the scope is alive.
  void call_pack_hook(const at::Tensor& tensor) override {
    const SavedTensorScope& scope = *std::exchange(scope_, nullptr);
    const Within outside(scope.before_);
    // A tensor with its graph would keep alive the node that saves it: a reference cycle.
    unpack_ = scope.pack_(tensor.requires_grad() ? tensor.detach() : tensor);
  }
  at::Tensor call_unpack_hook() override { return unpack_(); }

 private:
  const SavedTensorScope* scope_;
  Unpack unpack_;
};

std::unique_ptr<torch::autograd::SavedVariableHooks> detail::saved_variable_hooks() {
  if (!PackHooks::has(innermost)) return nullptr;
  return std::make_unique<PackHooks>(*innermost);
}

SavedTensorScope::SavedTensorScope(Pack pack)
    : pack_(std::move(pack)), before_(std::exchange(innermost, this)) {
  if (install_engine()) return;
  innermost = before_;
  throw UnavailableError(expectation(
      "SavedTensorScope", "LibTorch's own autograd engine, or Headroom's",
      "another, such as Python's", "torch.autograd.graph.saved_tensors_hooks in Python"));
}

Pack SavedTensorScope::current() {
  return innermost != nullptr ? *innermost : Pack();
}

SavedTensorScope::~SavedTensorScope() {
  innermost = before_;
}

}  // namespace headroom::libtorch
