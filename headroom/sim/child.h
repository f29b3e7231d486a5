// Simulating in a process that trains on a real GPU, or will: there a child process simulates,
// which begins with everything this one has in memory and ends with an answer in words.
//
//   std::string report = in_child([&] {
//     Simulation box = simulate("1x24GiB");
//     return predict(box, config).to_json();
//   });
//
// The child is a copy by fork(2), and what that leaves out is missing: other threads, CUDA (nothing
// on `cuda` may be touched there), and, once this process has had autograd's device threads - from
// its first backward pass with a GPU in sight, or with a simulated card - backward passes. Then
// UnavailableError says so; ask a program of its own for the prediction, such as headroom-engine,
// or make the prediction before the first step. The child runs on one CPU thread.
//
// Threads: from any. It must not be called while another thread holds a lock that the work needs.
#pragma once

#include <functional>
#include <string>

namespace headroom::sim {

// Whether a simulation belongs into a child: this process has used CUDA, or it has GPUs and could
// use them later. LibTorch has one accelerator a process, and once cards are simulated that is
// `sim`: simulate() is refused after CUDA, and CUDA's backward passes fail after simulate().
[[nodiscard]] bool needs_child();

// What `work` returned in the child. Throws what `work` threw - Headroom's errors and
// c10::OutOfMemoryError as they are, others as std::runtime_error with the same text - and
// UnavailableError if there can be no child, or it ended without an answer.
[[nodiscard]] std::string in_child(const std::function<std::string()>& work);

// Prepares a child that in_child() did not make, of Python's os.fork() for instance, to simulate:
// it drops the parent's cards, forgets CUDA, and uses one CPU thread.
void be_a_child();

}  // namespace headroom::sim
