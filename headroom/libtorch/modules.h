// Moves and clones whole modules between cpu, sim, cuda and meta, with one function for all.
//
// LibTorch's own `net->to(device)` works too, and for simulated cards from the first simulate() on
// (set_data.h). But it moves one tensor at a time: if the device gets full, part of the module has
// moved. It separates tensors that share storage, also on CUDA, and leaves the optimizer's state
// behind. LibTorch's clone() fails for a module on a simulated card.
//
//   move(*net, box.device(0));                  // net and its optimizer stay the same objects
//   auto twin = clone(*net, box.device(1));     // std::shared_ptr<Net>
//
// A move changes the tensors in place: a registered parameter and the module's member are one
// tensor, so optimizers and all other holders see the change. Tied weights stay one tensor, tensors
// that share storage still share it, gradients move too, and requires_grad, hooks, strides and
// types stay. If the move throws (the new device is full), no tensor has moved.
//
// A move skips tensors that are neither parameter nor buffer, and views of a parameter outside the
// module; those keep the old memory. A graph built before a move cannot run backward after it:
// autograd reports that a variable was modified. To move an optimizer's state, pass the optimizer
// too; before its first step it has none.
//
// Throws UsageError for tensors that cannot be moved in place: sparse, quantised or nested ones,
// and results of a computation that autograd has recorded.
//
// Threads: no other thread may use the module during a move.
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
// Moves all or none; a tensor that several have stays one.
void move(const std::vector<torch::nn::Module*>& modules, c10::Device device);
// Moves the state of an optimizer of torch::optim. Throws UsageError for other classes.
void move(torch::optim::Optimizer& optimizer, c10::Device device);
// Moves both or neither.
void move(torch::nn::Module& module, torch::optim::Optimizer& optimizer, c10::Device device);

// Gives every tensor of the modules new memory on `device`, without values and without gradients,
// and does not touch the old memory: for a child process, which cannot use its parent's devices.
void move_shapes(torch::nn::Module& module, c10::Device device);
void move_shapes(const std::vector<torch::nn::Module*>& modules, c10::Device device);

// The state tensors of an optimizer of torch::optim so far; none for other classes.
[[nodiscard]] std::vector<at::Tensor> states_of(const torch::optim::Optimizer& optimizer);

namespace detail {
using Tie = std::function<void(torch::nn::Module&)>;
[[nodiscard]] std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module,
                                                              c10::Device device, const Tie& tie);
}  // namespace detail

// A module of the same class with the same values, made directly on `device`. It uses the class's
// own clone(), and therefore reset(): the copy has only the parts that reset() makes, and its
// initialisation draws random numbers. Gradients are not copied.
//
// LibTorch's clone() unties weights that belong to two modules. A class with such weights needs a
// function tie_weights(), called on the copy, that ties them again, both members and registered
// parameters. If tensors that are one in the original are still two in the copy, this throws
// UsageError.
template <typename Module>
[[nodiscard]] std::shared_ptr<Module> clone(const Module& module, c10::Device device) {
  detail::Tie tie;
  if constexpr (requires(Module & copy) { copy.tie_weights(); })
    tie = [](torch::nn::Module& copy) { dynamic_cast<Module&>(copy).tie_weights(); };
  return std::dynamic_pointer_cast<Module>(detail::clone_module(module, device, tie));
}

}  // namespace headroom::libtorch
