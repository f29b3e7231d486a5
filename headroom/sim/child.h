// Simulates in a child process, for a process that trains on a real GPU, or will. The child starts
// with everything this process has in memory, and ends with an answer in words.
//
//   std::string report = in_child([&] {
//     Simulation box = simulate("1x24GiB");
//     return predict(box, config).to_json();
//   });
//
// The child is made by fork(2), which does not copy other threads and CUDA (the child must not
// touch anything on `cuda`). Once this process has autograd's device threads - from its first
// backward pass with a GPU in sight, or with a simulated card - the child cannot run backward
// passes, and in_child() throws UnavailableError. Then ask a separate program such as
// headroom-engine for the prediction, or predict before the first step. The child runs on one CPU
// thread.
//
// Threads: call it from any, but not while another thread holds a lock that the work needs.
#pragma once

#include <functional>
#include <string>

namespace headroom::sim {

// True if a simulation needs a child: this process has used CUDA, or has GPUs that it could use
// later. LibTorch has one accelerator per process, and once cards are simulated that is `sim`:
// simulate() is refused after CUDA, and CUDA's backward passes fail after simulate().
[[nodiscard]] bool needs_child();

// Runs `work` in a child and returns its result. Throws the exception that `work` threw -
// Headroom's errors and c10::OutOfMemoryError as they are, others as std::runtime_error with the
// same text - and UnavailableError if there can be no child, or it ended without an answer.
[[nodiscard]] std::string in_child(const std::function<std::string()>& work);

// Prepares a child that in_child() did not make, such as one of Python's os.fork(), to simulate:
// drops the parent's cards, forgets CUDA, and uses one CPU thread.
void be_a_child();

}  // namespace headroom::sim
