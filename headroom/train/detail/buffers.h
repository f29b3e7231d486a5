// The buffers of modules inside a step: as before if the attempt fails, and as after one forward
// pass of the whole batch if it commits.
//
//   Buffers buffers({&module});              // takes memory, once
//   buffers.begin(parts);
//   {
//     const libtorch::CallScope scope(buffers, libtorch::CallScope::Of::writing);
//     ... forward and backward passes of the parts ...
//   }
//   buffers.finish();                        // or restore(), after a failure
//
// Running statistics of batch norm: with one part they are what PyTorch makes of it. With several,
// the mean and the variance of all parts are pooled, as if the batch had been one, and applied once
// with the layer's momentum; num_batches_tracked rises by 1. They are found where batch_norm() is
// called with buffers of the modules for its running statistics, whichever class calls it. Other
// buffers stay as the last part left them.
//
// Threads: that of the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/libtorch/operator_calls.h"

namespace torch::nn {
class Module;
}

namespace headroom::train::detail {

class Buffers final : public libtorch::CallObserver {
 public:
  // Throws UsageError naming a buffer that cannot be copied in place: sparse, or several elements
  // in one place of memory.
  explicit Buffers(const std::vector<torch::nn::Module*>& modules);
  ~Buffers() override;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Remembers the values.
  void begin(std::int64_t parts);
  // Pools the statistics of batch norm, if the step has several parts.
  void on_call(libtorch::OperatorCall& call) override;
  // Both allocate nothing on the device.
  void finish();
  void restore();

  // Calls `visit(tensor)` for each of them.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const Buffer& buffer : buffers_) visit(buffer.value);
  }

 private:
  struct Norm;
  struct Buffer {
    at::Tensor value;   // an alias without autograd's version counter
    at::Tensor before;  // its memory is reserved
  };

  void add(const torch::nn::Module& module);
  [[nodiscard]] Norm* norm_of(libtorch::OperatorCall& call) const;
  void clear(const Norm& norm);
  void pool(Norm& norm, std::int64_t elements, double momentum);

  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Norm>> norms_;
  bool pools_ = false;  // this step has several parts
};

}  // namespace headroom::train::detail
