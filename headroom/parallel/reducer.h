// Adds up the gradients of all replicas during the backward pass, in buckets: a bucket goes as soon
// as its gradients are there, on a stream of its own, while the backward pass goes on.
//
//   parallel::Reducer reducer(optimizer->parameters(), group);
//   reducer.reserve();
//   ...                          // backward passes of all parts but the last
//   reducer.arm();
//   loss.backward();             // of the last part: gradients are final now
//   reducer.finish(true);        // each replica has the sums
//
// Buckets go in one fixed order, from the last parameter to the first, so that all ranks run the
// same sums and get the same bits. There are two buckets of memory, however large the model is; a
// larger parameter passes through in pieces.
//
// A rank whose step has failed calls finish(false): it takes part in the remaining sums with zeros,
// because the others wait for it. All ranks have to discard their gradients then.
//
// A parameter without a gradient on this rank counts as zeros. It keeps none if no rank has one.
//
// It needs the one hook that LibTorch has for a gradient that is complete, and calls the one that
// was there before. A parameter that gets several gradients in one backward pass, as reentrant
// checkpointing gives shared weights, must not be sent early: finish() throws UsageError.
//
// Threads: those of a Group; hooks run on autograd's threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "headroom/base/bytes.h"
#include "headroom/parallel/group.h"

namespace headroom::parallel {

class Reducer {
 public:
  // The parameters must be the same ones, in the same order, on all ranks of the group.
  // `most`: bytes of a bucket. Small models have smaller ones, so that there are several.
  Reducer(const std::vector<at::Tensor>& parameters, Group group, Bytes most = Bytes{16 << 20});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Takes the memory of the buckets, unless it has it.
  void reserve();
  // From here on gradients are sent when they are complete.
  void arm();
  // Sends the rest. Returns when the current stream has the sums. Throws what the sums threw.
  void finish(bool ok);

  // The sums so far in this step, for tests.
  [[nodiscard]] std::size_t sent() const;
  [[nodiscard]] std::size_t buckets() const;

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the hooks
};

}  // namespace headroom::parallel
