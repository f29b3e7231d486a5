// Tensors outside of the step that the loss changes in place: another network's batch norm, a
// teacher, an average of weights, a counter, the rows. Before the first write of an attempt a
// tensor is copied; after a failure its values are put back. So are the gradients that a backward
// pass leaves in other networks.
//
//   writes.begin(rows, random);
//   {
//     const Writes::Watch watch(writes);
//     ... forward and backward passes ...
//   }
//   writes.commit();                         // or undo(), after a failure
//
// Tensors that are made within the attempt are not copied. To tell them from older ones, the first
// attempt and each one after a failure look at every operator, and the others only at those that
// write. A tensor that one of these changes may be new to them, and made before the attempt or in
// it: if it is small and not overwritten, it is copied, too. A large one is not kept; if the
// attempt fails and the next one changes the same tensor again, that throws UsageError.
//
// It sees what LibTorch's operators write. It does not see writes through data_ptr(), and none into
// tensors without a storage (sparse ones).
//
// Threads: begin(), commit() and undo() are the step's; autograd's threads may write.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "headroom/libtorch/operator_calls.h"

namespace headroom::libtorch {
class RandomState;
}

namespace headroom::train::detail {

class Writes final : public libtorch::CallObserver {
 public:
  // Starts an attempt with these rows. The loss may draw from generators of its own: it adds them
  // to `random`, which must outlive the attempt.
  void begin(const std::vector<at::Tensor>& rows, libtorch::RandomState& random);
  // For a tensor that other code puts back: buffers, the step's own numbers.
  void leave_out(const at::Tensor& tensor);
  class Watch {
   public:
    explicit Watch(Writes& writes);

   private:
    libtorch::CallScope scope_;
  };
  void commit();
  // Takes no memory of a device.
  void undo();
  // The tensors have moved: every storage is another.
  void forget();
  // The first attempt takes the memory of later ones, too: it copies what they would copy.
  void copy_as_later() { copies_as_later_ = true; }

  void on_call(libtorch::OperatorCall& call) override;

 private:
  enum class Origin {
    elsewhere,  // left out
    older,      // than the attempt
    born,       // in the attempt
    unclear,    // one of the two
    doubtful,   // written in an attempt that failed, and not put back
  };
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps its address from being used again
    Origin origin;
    bool is_whole = false;  // all of it has been copied
  };
  struct Copy {
    at::Tensor value;  // an alias without autograd's version counter
    at::Tensor before;
  };
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  // A backward pass gives it a gradient.
  struct Leaf {
    WeakTensor tensor;
    at::Tensor gradient;  // before the attempt
  };

  Known& known(const at::Tensor& tensor, Origin otherwise);
  void see(const at::Tensor& argument);
  void look_at(libtorch::OperatorCall& call);
  void before_write(const libtorch::OperatorCall& call, const at::Tensor& tensor);
  void remember(Known& place, const at::Tensor& tensor);
  void end(Origin born);

  std::mutex mutex_;
  bool sees_all_ = true, copies_as_later_ = false;
  std::unordered_map<const c10::StorageImpl*, Known> known_;
  std::vector<Copy> copies_;               // in the order of the writes
  std::vector<Leaf> leaves_;               // older ones
  std::vector<at::Generator> generators_;  // the loss's own
  libtorch::RandomState* random_ = nullptr;
};

}  // namespace headroom::train::detail
