// A module of one's own as it is trained: forward, loss, backward, optimizer. What
// find_max_batch_size.h and own_module.h run, on the device and as a copy without data.
//
// create_batch(rows) makes a batch: a tensor, or a tuple of what the model's forward() takes. It is
// called as on the device (libtorch/on.h); tensors that it takes from elsewhere are copied there.
// The loss is the mean of the model's output unless a function loss(model, batch) is given.
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

#include "headroom/estimate/step_run.h"
#include "headroom/libtorch/modules.h"

namespace headroom::estimate::detail {

// A batch that was made, and how the loss comes from it.
using LossOfBatch = std::function<at::Tensor(torch::nn::Module&)>;

// What is trained, without its types: a model, or a function that makes one.
struct Trainee {
  torch::nn::Module* model = nullptr;  // null: there is none yet
  // Another one: of the class of this model, with its values, or made anew where that is null.
  std::function<std::shared_ptr<torch::nn::Module>(const torch::nn::Module*, c10::Device)> another;
  std::function<LossOfBatch(std::int64_t rows, c10::Device)> batch_of;
};

// A step of a training, by an optimizer over the model's parameters.
void step(torch::nn::Module& model, torch::optim::Optimizer& optimizer, const LossOfBatch& loss_of);
// Another one of the same kind over other parameters; null: an AdamW. Throws UsageError for a class
// that is not among those of torch::optim.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> like(
    const torch::optim::Optimizer* optimizer, const std::vector<at::Tensor>& parameters);

// The model without data, for a process that must not touch where it lies; null: there is none.
[[nodiscard]] std::shared_ptr<torch::nn::Module> shapes_of(const Trainee& trainee);
// Steps of a copy on the device that the result is given.
[[nodiscard]] MakeSubject copy_on(const Trainee& trainee, const torch::optim::Optimizer* optimizer,
                                  std::int64_t rows);

void put_on(at::Tensor& tensor, c10::Device device);
template <typename Batch>
void put_on(Batch& batch, c10::Device device) {
  if constexpr (requires { std::tuple_size<Batch>::value; })
    std::apply([&](auto&... part) { (put_on(part, device), ...); }, batch);
  else if constexpr (requires { batch.begin(); })
    for (auto& part : batch) put_on(part, device);
}

// Calls on the device, as libtorch::on does.
void run_on(c10::Device device, const std::function<void()>& run);
[[nodiscard]] at::Tensor one_number(const at::Tensor& output);

// The loss if no other is given.
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
Trainee trainee_of(Model& model, CreateBatch create_batch, Loss loss) {
  return {.model = &model,
          .another =
              [](const torch::nn::Module* of, c10::Device device) {
                return libtorch::clone(dynamic_cast<const Model&>(*of), device);
              },
          .batch_of = batches<Model>(std::move(create_batch), std::move(loss))};
}

// ---- Models that a function makes ----

// `[] { return Net(); }`: a module, a std::shared_ptr of one, or what TORCH_MODULE defines.
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
    return std::shared_ptr<Made>(new Made(make()));  // where it is made: no copy
  else
    return shared(make());
}

using MakeModule = std::function<std::shared_ptr<torch::nn::Module>()>;
// Called as on the device, or, where that fails, on the CPU and moved.
[[nodiscard]] std::shared_ptr<torch::nn::Module> made_on(c10::Device device,
                                                         const MakeModule& make);

template <MakesModel Make, typename CreateBatch, typename Loss>
Trainee trainee_of(Make make, CreateBatch create_batch, Loss loss) {
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
