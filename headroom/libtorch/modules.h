// Moving and cloning whole modules between cpu, sim, cuda and meta, with one function for all.
//
// LibTorch's own `net->to(device)` works as well, from and to simulated cards from the first
// simulate() on (set_data.h). It moves tensor after tensor: on a card that gets full some have
// moved, tensors that share storage without being one part, as on CUDA, and the state of an
// optimizer stays. LibTorch's clone() fails when the original is on a simulated card.
//
//   move(*net, box.device(0));                  // net and its optimizer stay the objects they were
//   auto twin = clone(*net, box.device(1));     // std::shared_ptr<Net>
//
// A move changes the tensors in place: the registered parameter and the module's member are one
// tensor, and both see it, as do optimizers and whoever else holds one. Tied weights stay one
// tensor, tensors that share storage go on sharing it, gradients come along, requires_grad, hooks,
// strides and types stay. Either all of it moves or, when something throws (the new device is
// full), nothing.
//
// What is not moved: tensors that are neither parameter nor buffer, and views of a parameter
// outside of the module, which keep the old memory. A graph built before a move cannot be run
// backward after it: autograd says that a variable was modified. The state an optimizer has by then
// is moved by naming the optimizer, too; one that has not stepped yet needs nothing.
//
// Throws UsageError for tensors that cannot be moved in place: sparse, quantised or nested ones,
// and those that are themselves the result of a computation that autograd remembers.
//
// Threads: while a module moves, nothing else may use it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace headroom::libtorch {

void move(torch::nn::Module& module, c10::Device device);
// What torch::optim's classes remember of each parameter. UsageError: it is another class.
void move(torch::optim::Optimizer& optimizer, c10::Device device);
// Both, or neither.
void move(torch::nn::Module& module, torch::optim::Optimizer& optimizer, c10::Device device);

// The tensors that an optimizer of torch::optim remembers by now; of another class: none.
[[nodiscard]] std::vector<at::Tensor> states_of(const torch::optim::Optimizer& optimizer);

namespace detail {
using Tie = std::function<void(torch::nn::Module&)>;
[[nodiscard]] std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module,
                                                              c10::Device device, const Tie& tie);
}  // namespace detail

// A module of the same class with the same values, made on `device` at once. It goes through the
// class's own clone(), so through reset(): what reset() does not make is not there, and random
// numbers are drawn by its initialisation. Gradients are not copied.
//
// LibTorch's clone() unties weights that belong to two modules. A class that has such weights gives
// it a function tie_weights(), which makes them one again, members and registered ones; it is
// called on the copy. Where tensors are one in the original and two in the copy all the same, this
// throws UsageError.
template <typename Module>
[[nodiscard]] std::shared_ptr<Module> clone(const Module& module, c10::Device device) {
  detail::Tie tie;
  if constexpr (requires(Module & copy) { copy.tie_weights(); })
    tie = [](torch::nn::Module& copy) { dynamic_cast<Module&>(copy).tie_weights(); };
  return std::dynamic_pointer_cast<Module>(detail::clone_module(module, device, tie));
}

}  // namespace headroom::libtorch
