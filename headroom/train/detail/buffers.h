// A module's buffers inside a step: as before if the attempt fails, and as after one forward pass
// of the whole batch if it commits.
//
//   Buffers buffers(module);                 // takes memory, once
//   buffers.begin(parts);
//   {
//     const Buffers::Watch watch(buffers);
//     ... forward and backward passes of the parts ...
//   }
//   buffers.finish();                        // or restore(), after a failure
//
// Running statistics of batch norm: with one part they are what PyTorch makes of it. With several,
// the mean and the variance of all parts are pooled, as if the batch had been one, and applied once
// with the layer's momentum; num_batches_tracked rises by 1. They are found where batch_norm() is
// called with buffers of the module for its running statistics, whichever class calls it. Other
// buffers stay as the last part left them.
//
// Threads: that of the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace headroom::train::detail {

class Buffers {
 public:
  // Throws UsageError naming a buffer that cannot be copied in place: sparse, or several elements
  // in one place of memory.
  explicit Buffers(torch::nn::Module& module);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Remembers the values.
  void begin(std::int64_t parts);
  // Pools the statistics of the calls of batch_norm() on this thread, until it ends.
  class Watch {
   public:
    explicit Watch(Buffers& buffers);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Buffers& buffers_;
    std::uint64_t callback_ = 0;
  };
  // Both allocate nothing on the device.
  void finish();
  void restore();

 private:
  struct Norm;
  struct Observer;
  struct Buffer {
    at::Tensor value;   // an alias without autograd's version counter
    at::Tensor before;  // its memory is reserved
  };

  void clear(const Norm& norm);
  void pool(Norm& norm, std::int64_t elements, double momentum);

  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Norm>> norms_;
  bool pools_ = false;          // this step has several parts
  std::exception_ptr failure_;  // LibTorch swallows those of observers
};

}  // namespace headroom::train::detail
