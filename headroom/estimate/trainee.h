// A module of one's own as it is trained: forward, loss, backward, optimizer. What
// find_max_batch_size.h and own_module.h run, on the device and as a copy without data.
//
// create_batch(rows) makes a batch: a tensor, or a tuple of what the model's forward() takes. It is
// called as on the device (libtorch/on.h); tensors that it takes from elsewhere are copied there.
// The loss is the mean of the model's output unless a function loss(model, batch) is given.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "headroom/estimate/step_run.h"
#include "headroom/libtorch/modules.h"

namespace headroom::estimate::detail {

// A batch that was made, and how the loss comes from it.
using LossOfBatch = std::function<at::Tensor(torch::nn::Module&)>;

// What is trained, without its types.
struct Trainee {
  torch::nn::Module& model;
  // Of the model, or of another one of its class.
  std::function<std::shared_ptr<torch::nn::Module>(const torch::nn::Module&, c10::Device)> clone;
  std::function<LossOfBatch(std::int64_t rows, c10::Device)> batch_of;
};

// A step of a training, by an optimizer over the model's parameters.
void step(torch::nn::Module& model, torch::optim::Optimizer& optimizer, const LossOfBatch& loss_of);
// Another one of the same kind over other parameters; null: an AdamW. Throws UsageError for a class
// that is not among those of torch::optim.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> like(
    const torch::optim::Optimizer* optimizer, const std::vector<at::Tensor>& parameters);

// The model without data, for a process that must not touch where it lies.
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
Trainee trainee_of(Model& model, CreateBatch create_batch, Loss loss) {
  const auto batch_of = [create_batch, loss](std::int64_t rows, c10::Device device) -> LossOfBatch {
    using Batch = std::decay_t<decltype(create_batch(rows))>;
    std::optional<Batch> batch;
    run_on(device, [&] { batch.emplace(create_batch(rows)); });
    put_on(*batch, device);
    return [batch = std::move(*batch), loss](torch::nn::Module& of) {
      return loss(dynamic_cast<Model&>(of), batch);
    };
  };
  return {.model = model,
          .clone =
              [](const torch::nn::Module& of, c10::Device device) {
                return libtorch::clone(dynamic_cast<const Model&>(of), device);
              },
          .batch_of = batch_of};
}

}  // namespace headroom::estimate::detail
