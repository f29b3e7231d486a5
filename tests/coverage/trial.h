// One run of a case: makes inputs and modules on the device that is tried, and remembers them, so
// that their gradients can be looked at afterwards. Numbers are drawn on the host from a generator
// of its own, so that every run of a case sees the same.
#pragma once

#include <torch/torch.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/libtorch/on.h"

namespace headroom::coverage {

using at::IntArrayRef;
using torch::Tensor;

// The results of a program, flat.
class Outputs {
 public:
  Outputs() = default;
  Outputs(const Tensor& tensor) { add(tensor); }
  Outputs(const std::vector<Tensor>& tensors) { add(tensors); }
  template <typename... Parts>
  Outputs(const std::tuple<Parts...>& parts) {
    add(parts);
  }
  Outputs(const torch::nn::ASMoutput& parts) {
    add(parts.output);
    add(torch::tensor(parts.loss));
  }

  [[nodiscard]] const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  void add(const Tensor& tensor) { tensors_.push_back(tensor); }
  void add(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) add(tensor);
  }
  template <typename... Parts>
  void add(const std::tuple<Parts...>& parts) {
    std::apply([this](const auto&... part) { (this->add(part), ...); }, parts);
  }

  std::vector<Tensor> tensors_;
};

struct Setting {
  c10::Device device = c10::kCPU;
  c10::ScalarType type = c10::kFloat;
  bool channels_last = false;       // images and volumes
  bool expanded_cotangent = false;  // as backward of a sum gives it, otherwise a tensor of its own
};

class Trial {
 public:
  explicit Trial(const Setting& setting);

  [[nodiscard]] c10::Device device() const { return setting_.device; }
  [[nodiscard]] c10::ScalarType type() const { return setting_.type; }

  // ---- Inputs, of the setting's type ----

  Tensor x(IntArrayRef sizes);         // of the normal distribution; its gradient is looked at
  Tensor share(IntArrayRef sizes);     // between 0 and 1; its gradient is looked at
  Tensor inner(IntArrayRef sizes);     // as x, but no leaf: may be written in place
  Tensor constant(IntArrayRef sizes);  // as x, without gradient
  Tensor positive(IntArrayRef sizes);  // from 0.5 to 1.5, without gradient
  Tensor signs(IntArrayRef sizes);     // -1 and 1

  // ---- Of types of their own ----

  Tensor below(std::int64_t limit, IntArrayRef sizes);  // whole numbers from 0
  Tensor put(const Tensor& host) const;                 // as it is

  // ---- Modules ----

  // The result of `make`, on the device, in the setting's type; the trial looks at its gradients
  // and buffers.
  template <typename Make>
  auto make(Make&& make) {
    auto module = libtorch::on(device(), std::forward<Make>(make));
    keep(*module);
    return module;
  }
  template <typename Module, typename... Arguments>
  Module build(const Arguments&... arguments) {
    return make([&] { return Module(arguments...); });
  }
  template <typename Module, typename Options, typename... Inputs>
  auto forward(const Options& options, const Inputs&... inputs) {
    return build<Module>(options)->forward(inputs...);
  }
  template <typename Module, typename Options, typename... Inputs>
  auto evaluate(const Options& options, const Inputs&... inputs) {
    Module module = build<Module>(options);
    module->eval();
    return module->forward(inputs...);
  }
  // A leaf of one's own, such as a weight.
  Tensor keep(Tensor tensor);

  // ---- For the harness ----

  // From cotangents of its own. Results without a graph are left alone.
  void backward(const Outputs& outputs);

  struct Named {
    std::string name;
    Tensor tensor;
  };
  // Inputs, parameters and their gradients, buffers.
  [[nodiscard]] std::vector<Named> kept() const;
  [[nodiscard]] bool saw_images() const { return saw_images_; }

 private:
  void keep(torch::nn::Module& module);
  Tensor leaf(const Tensor& host);
  [[nodiscard]] Tensor ready(const Tensor& host);
  [[nodiscard]] Tensor cotangent(const Tensor& output);

  Setting setting_;
  at::Generator generator_;
  std::vector<Tensor> inputs_;
  std::vector<Named> parameters_;
  std::vector<Named> buffers_;
  bool saw_images_ = false;
};

}  // namespace headroom::coverage
