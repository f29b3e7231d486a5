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
// thread; the innermost scope applies, and an empty `pack` leaves tensors where they are. `unpack` runs on the thread of the backward pass, once for
// each use.
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

  // The `pack` of this thread's innermost scope; empty if there is none.
  [[nodiscard]] static Pack current();

 private:
  friend class detail::PackHooks;
  Pack pack_;
  const SavedTensorScope* before_;
};

}  // namespace headroom::libtorch
