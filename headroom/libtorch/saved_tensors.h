// What autograd keeps of a forward pass for the backward pass, in other hands: every tensor saved
// in the scope goes through `pack`, and what that returns is asked for the tensor when it is
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
// As torch.autograd.graph.saved_tensors_hooks of Python: the tensor given to `pack` is detached,
// `pack` runs without recording a graph, weights that are leaves pass through it, too. Holds for
// this thread; the innermost scope counts. `unpack` runs on the thread of the backward pass, once
// for each use.
//
// It works through Headroom's own autograd engine, which takes LibTorch's place at the first scope
// of the process. In a Python process the engine belongs to Python: UnavailableError, use Python's
// hooks there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace headroom::libtorch {

using Unpack = std::function<at::Tensor()>;
using Pack = std::function<Unpack(const at::Tensor&)>;

class SavedTensorScope {
 public:
  explicit SavedTensorScope(Pack pack);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

 private:
  Pack pack_;
  const Pack* before_;
};

}  // namespace headroom::libtorch
