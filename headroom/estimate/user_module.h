// A user's own module and its training step: forward, loss, backward, optimizer.
// find_max_batch_size.h and own_module.h run it, on the device or as a copy without data.
//
// create_batch(rows) makes a batch: a tensor, or a tuple of the arguments of the model's forward().
// The call runs with the device as default (libtorch/on.h); tensors from elsewhere are copied to
// the device. The loss is the mean of the model's output unless a function loss(model, batch) is
// given.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "headroom/dryrun/step_run.h"
#include "headroom/libtorch/modules.h"

namespace headroom::estimate::detail {

// A batch, bound to the function that computes its loss.
using LossOfBatch = std::function<at::Tensor(torch::nn::Module&)>;

// The model to train, or a function that makes it, with its types erased.
struct UserModule {
  torch::nn::Module* model = nullptr;  // null if a function makes the model
  // Another model: a clone of this one with its values, or a new one if null.
  std::function<std::shared_ptr<torch::nn::Module>(const torch::nn::Module*, c10::Device)> another;
  std::function<LossOfBatch(std::int64_t rows, c10::Device)> batch_of;
};

// One training step, with an optimizer over the model's parameters.
void step(torch::nn::Module& model, torch::optim::Optimizer& optimizer, const LossOfBatch& loss_of);
// Another optimizer of the same kind over other parameters; null gives an AdamW. Throws UsageError
// for a class that is not one of torch::optim's.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> like(
    const torch::optim::Optimizer* optimizer, const std::vector<at::Tensor>& parameters);

// The model without data, for a process that must not use its device; null if there is no model.
[[nodiscard]] std::shared_ptr<torch::nn::Module> shapes_of(const UserModule& user_module);
// Makes the steps of a copy on the device passed to the result.
[[nodiscard]] dryrun::MakeSubject copy_on(const UserModule& user_module,
                                          const torch::optim::Optimizer* optimizer,
                                          std::int64_t rows);

void put_on(at::Tensor& tensor, c10::Device device);
template <typename Batch>
void put_on(Batch& batch, c10::Device device) {
  if constexpr (requires { std::tuple_size<Batch>::value; })
    std::apply([&](auto&... part) { (put_on(part, device), ...); }, batch);
  else if constexpr (requires { batch.begin(); })
    for (auto& part : batch) put_on(part, device);
}

// Runs `run` with the device as default, like libtorch::on.
void run_on(c10::Device device, const std::function<void()>& run);
[[nodiscard]] at::Tensor one_number(const at::Tensor& output);

// The default loss.
struct MeanOfOutput {
  template <typename Model, typename Batch>
  at::Tensor operator()(Model& model, const Batch& batch) const {
    if constexpr (requires { std::tuple_size<Batch>::value; })
      return one_number(
          std::apply([&](const auto&... part) { return model.forward(part...); }, batch));
    else
      return one_number(model.forward(batch));
  }
};

template <typename Model, typename CreateBatch, typename Loss>
std::function<LossOfBatch(std::int64_t, c10::Device)> batches(CreateBatch create_batch, Loss loss) {
  return [create_batch, loss](std::int64_t rows, c10::Device device) -> LossOfBatch {
    using Batch = std::decay_t<decltype(create_batch(rows))>;
    std::optional<Batch> batch;
    run_on(device, [&] { batch.emplace(create_batch(rows)); });
    put_on(*batch, device);
    return [batch = std::move(*batch), loss](torch::nn::Module& of) {
      return loss(dynamic_cast<Model&>(of), batch);
    };
  };
}

template <typename Model, typename CreateBatch, typename Loss>
UserModule user_module_of(Model& model, CreateBatch create_batch, Loss loss) {
  return {.model = &model,
          .another =
              [](const torch::nn::Module* of, c10::Device device) {
                return libtorch::clone(dynamic_cast<const Model&>(*of), device);
              },
          .batch_of = batches<Model>(std::move(create_batch), std::move(loss))};
}

// ---- Models made by a function ----

// `[] { return Net(); }`: returns a module, a std::shared_ptr of one, or a TORCH_MODULE holder.
template <typename Make>
concept MakesModel = std::invocable<Make&> && !std::is_void_v<std::invoke_result_t<Make&>>;

template <typename Made>
auto shared(Made made) {
  if constexpr (requires { made.ptr(); })
    return made.ptr();
  else
    return made;
}
template <typename Make>
auto shared_from(Make& make) {
  using Made = std::invoke_result_t<Make&>;
  if constexpr (std::is_base_of_v<torch::nn::Module, Made>)
    return std::shared_ptr<Made>(new Made(make()));  // built in place: no copy
  else
    return shared(make());
}

using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;
// Makes the model with the device as default; if that fails, makes it on the CPU and moves it.
[[nodiscard]] std::shared_ptr<torch::nn::Module> made_on(c10::Device device,
                                                         const MakeModule& make);

template <MakesModel Make, typename CreateBatch, typename Loss>
UserModule user_module_of(Make make, CreateBatch create_batch, Loss loss) {
  using Model = typename decltype(shared_from(make))::element_type;
  return {.model = nullptr,
          .another =
              [make](const torch::nn::Module*, c10::Device device) {
                return made_on(device, [&]() mutable -> std::shared_ptr<torch::nn::Module> {
                  Make own = make;
                  return shared_from(own);
                });
              },
          .batch_of = batches<Model>(std::move(create_batch), std::move(loss))};
}

}  // namespace headroom::estimate::detail
