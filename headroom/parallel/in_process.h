// Ranks that are threads of this process, each with tensors on a device of its own, as backends of
// c10d. Tensors are copied from device to device: none passes through the host, or is gathered on
// one device.
//
//   const auto backends = parallel::in_process(4);
//   threads.run([&](int rank) {                          // rank_threads.h
//     const parallel::Group group(backends[rank]);
//     group.sum(gradients[rank]);
//   });
//
// - A sum adds the tensors in the order of the ranks, so its bits do not depend on timing.
// - Each rank writes to its own device only.
// - Copies run in the order of each rank's current stream at its call, as kernels do. A call
//   returns when they have been issued; a rank's next use of its tensors, in that stream, comes
//   after them.
// - A sum needs scratch memory, 2 / ranks of the tensor, which is kept for the next one.
// - send() holds its tensor until the receiver has issued its copy, and its Work completes then.
//   recv() waits for the sender.
//
// It offers allreduce (sums), broadcast, send, recv and barrier.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <vector>

namespace headroom::parallel {

// One for each rank. They may be used as long as any of them lives.
[[nodiscard]] std::vector<c10::intrusive_ptr<c10d::Backend>> in_process(int ranks);

// One of them without the others, for a dry run: it takes the same memory, and waits for none. Sums
// are those of equal tensors on all ranks; what it receives stays as it was.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> in_process_alone(int rank, int ranks);

}  // namespace headroom::parallel
