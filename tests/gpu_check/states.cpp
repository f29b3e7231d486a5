// Optimizers with states in few bits and with stochastic rounding: the card's bits beside the
// CPU's, and the time of a step for each thousand million parameters.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>

#include "headroom/base/time.h"
#include "headroom/memory/device_memory.h"
#include "headroom/optim/optimizer.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

using Tensors = std::vector<at::Tensor>;
using optim::OptimizerForm;
using optim::Rounding;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)> make;
};

const std::vector<Kind> kKinds{
    {"adamw8bit",
     [](const Tensors& of) {
       return optim::make_compact_adamw(of, {.rounding = Rounding::stochastic, .seed = 7});
     }},
    {"adamw4bit",
     [](const Tensors& of) {
       return optim::make_compact_adamw(of,
                                        {.bits = 4, .rounding = Rounding::stochastic, .seed = 7});
     }},
    {"adamw stochastic",
     [](const Tensors& of) {
       return optim::make_adamw(
           of, {.form = OptimizerForm::fused, .rounding = Rounding::stochastic, .seed = 7});
     }},
    {"sgd stochastic", [](const Tensors& of) {
       return optim::make_sgd(of, {.momentum = 0.9,
                                   .form = OptimizerForm::fused,
                                   .rounding = Rounding::stochastic,
                                   .seed = 7});
     }}};

// Equal numbers on each device.
Tensors numbers(c10::Device device, at::ScalarType type, std::int64_t large, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  Tensors all;
  for (const std::int64_t count : {large, std::int64_t{70'001}, std::int64_t{300}})
    all.push_back((at::randn({count}, generator) * 0.01).to(device, type));
  return all;
}

std::unique_ptr<optim::Optimizer> stepped(const Kind& kind, c10::Device device,
                                          at::ScalarType type) {
  Tensors parameters = numbers(device, type, 1 << 20, 1);
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  auto optimizer = kind.make(parameters);
  optimizer->reserve();
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensors gradients = numbers(device, type, 1 << 20, 10 + step);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
    optimizer->commit();
  }
  return optimizer;
}

std::int64_t different(const at::Tensor& one, const at::Tensor& other) {
  return at::ne(one.detach().cpu(), other.detach().cpu()).sum().item<std::int64_t>();
}

std::int64_t different(const optim::Optimizer& one, const optim::Optimizer& other) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < one.parameters().size(); ++i) {
    count += different(one.parameters()[i], other.parameters()[i]);
    for (const auto& [name, tensor] : one.state(i))
      count += different(tensor, other.state(i).at(name));
  }
  return count;
}

// Milliseconds for a thousand million parameters in bfloat16, the best of five steps.
double milliseconds(const Kind& kind, c10::Device device, std::int64_t count) {
  at::Tensor parameter = at::zeros({count}, at::TensorOptions(device).dtype(at::kBFloat16));
  parameter.requires_grad_().mutable_grad() = at::full_like(parameter, 0.01);
  const auto optimizer = kind.make({parameter});
  optimizer->reserve();
  memory::DeviceMemory& memory = memory::memory_of(device);
  double best = 0;
  for (int step = 0; step < 6; ++step) {
    memory.synchronize(device.index());
    const Clock::time_point begin = Clock::now();
    optimizer->commit();
    memory.synchronize(device.index());
    const double seconds = Seconds(Clock::now() - begin).count();
    if (step == 1 || (step > 1 && seconds < best)) best = seconds;
  }
  return best * 1e3 * 1e9 / static_cast<double>(count);
}

}  // namespace

Outcome check_states(Place& place) {
  const c10::Device device = place.open();
  const std::int64_t count = place.is_simulated() ? 1 << 20 : 1 << 28;
  std::vector<std::string> complaints;
  std::string words;
  Json figures = Json::object();
  for (const Kind& kind : kKinds) {
    std::int64_t wrong = 0;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
      wrong += different(*stepped(kind, device, type), *stepped(kind, at::kCPU, type));
    const double time = milliseconds(kind, device, count);
    figures[kind.name] = {{"different", wrong}, {"ms_for_1e9", time}};
    if (wrong > 0)
      complaints.push_back(std::string(kind.name) + ": " + std::to_string(wrong) +
                           " numbers differ from the CPU's");
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%s%s %.2f ms", words.empty() ? "" : ", ", kind.name,
                  time);
    words += text.data();
  }
  return judged(complaints, "equal to the CPU's; for 1e9 parameters " + words, std::move(figures));
}

}  // namespace headroom::gpu_check
