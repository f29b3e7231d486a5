// The state of random number generators: captured, and restored so that the same numbers come
// again.
//
//   const libtorch::RandomState before(libtorch::devices_of(model.parameters()));
//   ... a step that fails ...
//   before.restore();               // dropout of the next try drops the same elements
//
// It holds the CPU's generator and one of each device; states are small and lie in host memory.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>
#include <utility>
#include <vector>

namespace headroom::libtorch {

class RandomState {
 public:
  // The present state of the CPU's generator and of these devices'. Devices without an own
  // generator (meta) and repeated ones may be among them.
  explicit RandomState(const std::vector<c10::Device>& devices, bool with_cpu = true);

  // Adds a generator in its present state; false if it was there.
  bool take(const at::Generator& generator);
  void restore() const;
  // The present state of the same generators.
  [[nodiscard]] RandomState now() const;
  // The states by their generators' devices ("cpu", "cuda:0"), for a file, and back. A generator of
  // a device that this process does not use is left out; returns false if one was.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named() const;
  static bool restore(const std::vector<std::pair<std::string, at::Tensor>>& named);
  // Forgets the generators that have not been used since.
  void keep_used();

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// The accelerators that this process uses: simulated cards, and GPUs with a CUDA context.
[[nodiscard]] std::vector<c10::Device> devices_in_use();

// Each device that holds one of these tensors, once, in the order of appearance. Undefined tensors
// have none.
[[nodiscard]] std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors);

}  // namespace headroom::libtorch
