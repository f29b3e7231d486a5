// The buffers of modules inside a step: as before if the attempt fails, and as after one forward
// pass of the whole batch if it commits.
//
//   Buffers buffers({&module});              // takes memory, once
//   buffers.begin(parts > 1);
//   {
//     const libtorch::CallScope scope(buffers, libtorch::CallScope::Of::writing);
//     ... forward and backward passes of the parts ...
//   }
//   buffers.add_up(true, last);              // with the other replicas
//   buffers.finish();                        // or restore(), after a failure
//
// Running statistics of batch norm: with one part they are what PyTorch makes of it. With several,
// the mean and the variance of all parts of all replicas are pooled, as if the batch had been one,
// and applied once with the layer's momentum; num_batches_tracked rises by 1. They are found where
// batch_norm() is called with buffers of the modules for its running statistics, whichever class
// calls it. Other buffers stay as the last part left them, that of the last replica that had one.
//
// Threads: that of the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/libtorch/operator_calls.h"
#include "headroom/parallel/group.h"

namespace torch::nn {
class Module;
}

namespace headroom::train::detail {

class Buffers final : public libtorch::CallObserver {
 public:
  // Throws UsageError naming a buffer that cannot be copied in place: sparse, or several elements
  // in one place of memory.
  explicit Buffers(const std::vector<torch::nn::Module*>& modules,
                   parallel::Group replicas = parallel::Group());
  ~Buffers() override;
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Remembers the values. `pools`: the batch comes in several parts, here or on other replicas.
  void begin(bool pools);
  // Pools the statistics of batch norm.
  void on_call(libtorch::OperatorCall& call) override;
  // Takes in what the parts of the other replicas have left, of which `last` had the last rows.
  // Each replica calls it, with false after a failure.
  void add_up(bool ok, int last);
  // These allocate nothing on the device.
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
    at::Tensor own;             // the module's
    at::Tensor value;           // an alias without autograd's version counter
    at::Tensor before;          // its memory is reserved
    bool is_statistic = false;  // of a batch norm
    std::int64_t version = 0;   // of `own`, when the step began
  };

  void add(const torch::nn::Module& module);
  [[nodiscard]] Norm* norm_of(libtorch::OperatorCall& call) const;
  void clear(const Norm& norm);
  void pool(Norm& norm, std::int64_t elements, double momentum);
  [[nodiscard]] static bool has_changed(const Buffer& one);
  void add_up(Norm& norm, double all);

  const parallel::Group replicas_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Norm>> norms_;
  bool pools_ = false;
};

}  // namespace headroom::train::detail
