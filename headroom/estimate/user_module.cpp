#include "headroom/estimate/user_module.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/optim.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::estimate::detail {
namespace {

using torch::nn::Module;
using torch::optim::Optimizer;

template <typename Kind, typename Options>
std::unique_ptr<Optimizer> if_of(const Optimizer& optimizer,
                                 const std::vector<at::Tensor>& parameters) {
  if (dynamic_cast<const Kind*>(&optimizer) == nullptr) return nullptr;
  return std::make_unique<Kind>(parameters, static_cast<const Options&>(optimizer.defaults()));
}

// LibTorch's error says how a class gets clone(), but not that a function makes clone()
// unnecessary.
std::shared_ptr<Module> cloned(const UserModule& user_module, c10::Device device) {
  try {
    return user_module.another(user_module.model, device);
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("clone() has not been implemented") == std::string::npos) throw;
    throw UsageError(expectation("clone", "a model that can be copied",
                                 user_module.model->name() + ", whose class has no clone()",
                                 "a function in its place, [] { return Net(); }, or deriving from "
                                 "torch::nn::Cloneable"));
  }
}

// False for torch::nn::TransformerEncoder, for instance: its reset() copies layers that stay on the
// old device.
bool can_be_made_elsewhere(const UserModule& user_module) {
  try {
    static_cast<void>(user_module.another(user_module.model, at::kMeta));
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

std::shared_ptr<Module> copy_of(const UserModule& user_module, c10::Device device) {
  if (user_module.model == nullptr || can_be_made_elsewhere(user_module))
    return user_module.another(user_module.model, device);
  const std::vector<at::Tensor> parameters = user_module.model->parameters();
  std::shared_ptr<Module> copy =
      cloned(user_module, parameters.empty() ? c10::Device(at::kCPU) : parameters.front().device());
  libtorch::move(*copy, device);
  return copy;
}

}  // namespace

void step(Module& model, Optimizer& optimizer, const LossOfBatch& loss_of) {
  optimizer.zero_grad();
  loss_of(model).backward();
  optimizer.step();
}

std::unique_ptr<Optimizer> like(const Optimizer* optimizer,
                                const std::vector<at::Tensor>& parameters) {
  using namespace torch::optim;
  if (optimizer == nullptr) return std::make_unique<AdamW>(parameters);
  if (auto it = if_of<AdamW, AdamWOptions>(*optimizer, parameters)) return it;
  if (auto it = if_of<Adam, AdamOptions>(*optimizer, parameters)) return it;
  if (auto it = if_of<SGD, SGDOptions>(*optimizer, parameters)) return it;
  if (auto it = if_of<RMSprop, RMSpropOptions>(*optimizer, parameters)) return it;
  if (auto it = if_of<Adagrad, AdagradOptions>(*optimizer, parameters)) return it;
  throw UsageError(expectation("optimizer", "AdamW, Adam, SGD, RMSprop or Adagrad of torch::optim",
                               "another optimizer", "none, which means AdamW"));
}

std::shared_ptr<Module> shapes_of(const UserModule& user_module) {
  return user_module.model == nullptr ? nullptr : copy_of(user_module, at::kMeta);
}

std::shared_ptr<Module> made_on(c10::Device device, const MakeModule& make_one) {
  const auto make = [&] {
    std::shared_ptr<Module> made = make_one();
    if (made == nullptr) throw UsageError(expectation("make", "a model", "null"));
    return made;
  };
  try {
    return libtorch::on(device, make);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error&) {  // for instance, `make` needs the values of its tensors
    std::shared_ptr<Module> made = make();
    libtorch::move(*made, device);
    return made;
  }
}

dryrun::MakeSubject copy_on(const UserModule& user_module, const Optimizer* optimizer,
                            std::int64_t rows) {
  return [&user_module, optimizer, rows](c10::Device device) {
    const std::shared_ptr<Module> model = copy_of(user_module, device);
    model->train();
    const std::shared_ptr<Optimizer> its = like(optimizer, model->parameters());
    dryrun::Subject subject;
    subject.parameters = libtorch::parameters_of(*model);
    for (const auto& item : model->named_buffers())
      subject.buffers.emplace_back(item.key(), item.value());
    subject.states = libtorch::states_of(*its);  // Adagrad's state exists before its first step
    subject.step = [model, its, loss_of = user_module.batch_of(rows, device)] {
      step(*model, *its, loss_of);
    };
    return subject;
  };
}

void put_on(at::Tensor& tensor, c10::Device device) {
  if (tensor.defined()) tensor = tensor.to(device);
}

void run_on(c10::Device device, const std::function<void()>& run) {
  libtorch::on(device, run);
}

at::Tensor one_number(const at::Tensor& output) {
  return output.dim() == 0 ? output : output.mean();
}

}  // namespace headroom::estimate::detail
