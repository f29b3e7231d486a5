// Saved-tensor hooks choose where autograd keeps tensors for the backward pass: every tensor saved
// in the scope goes through `pack`, and the function that `pack` returns gives it back when it is
// needed.
//
//   {
//     const SavedTensorScope scope([](const at::Tensor& x) -> Unpack {
//       return [host = x.to(at::kCPU), device = x.device()] { return host.to(device); };
//     });
//     loss = model(batch);          // unmodified: its saved tensors wait in host memory
//   }
//   loss.backward();
//
// Like Python's torch.autograd.graph.saved_tensors_hooks: the tensor passed to `pack` is detached,
// `pack` runs without recording a graph, and leaf weights pass through it too. Holds for this
// thread; the innermost scope applies. While its `pack` runs, the scope outside applies to what
// `pack` keeps in a torch::autograd::SavedVariable. `unpack` runs on the thread of the backward
// pass, once for each use.
//
// The hooks need Headroom's own autograd engine, which replaces LibTorch's at the first scope of
// the process. In a Python process the engine is Python's: the constructor throws UnavailableError;
// use Python's hooks there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace headroom::libtorch {

using Unpack = std::function<at::Tensor()>;
using Pack = std::function<Unpack(const at::Tensor&)>;

namespace detail {
class PackHooks;
}

class SavedTensorScope {
 public:
  explicit SavedTensorScope(Pack pack);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  // The innermost scope of this thread; null if there is none.
  [[nodiscard]] static const SavedTensorScope* innermost();

 private:
  friend class detail::PackHooks;
  Pack pack_;
  const SavedTensorScope* before_;
};

// For a block of code, a scope of this thread further out applies, as if those inside it were not
// there. Null if none applies.
class OuterScope {
 public:
  explicit OuterScope(const SavedTensorScope* outer);
  ~OuterScope();
  OuterScope(const OuterScope&) = delete;
  OuterScope& operator=(const OuterScope&) = delete;

 private:
  const SavedTensorScope* before_;
};

}  // namespace headroom::libtorch
