// An optimizer's commit() after reserve(): the statistics of the card's own allocator must not
// move.
#include <ATen/ATen.h>

#include <functional>
#include <memory>

#include "headroom/memory/device_memory.h"
#include "headroom/optim/optimizer.h"
#include "tests/gpu_check/check.h"

namespace headroom::gpu_check {
namespace {

using Tensors = std::vector<at::Tensor>;
using optim::OptimizerForm;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Tensors&)> make;
};

const std::vector<Kind> kKinds{
    {"adamw",
     [](const Tensors& of) { return optim::make_adamw(of, {.form = OptimizerForm::fused}); }},
    {"adam",
     [](const Tensors& of) {
       return optim::make_adam(of, {.amsgrad = true, .form = OptimizerForm::fused});
     }},
    {"sgd", [](const Tensors& of) { return optim::make_sgd(of, {.form = OptimizerForm::fused}); }},
    {"sgd_momentum",
     [](const Tensors& of) {
       return optim::make_sgd(of, {.momentum = 0.9, .form = OptimizerForm::fused});
     }},
    {"adafactor", [](const Tensors& of) { return optim::make_adafactor(of); }}};

// Matrices, vectors and a number, large enough for kernels that would want a buffer.
Tensors parameters(c10::Device device, at::ScalarType type) {
  Tensors all;
  for (const std::vector<std::int64_t>& sizes :
       std::vector<std::vector<std::int64_t>>{{3000, 130}, {1500}, {7, 5, 3, 3}, {}, {1 << 20, 2}})
    all.push_back(at::randn(sizes).to(device, type).requires_grad_());
  return all;
}

// What three commits change in the statistics.
struct Change {
  std::int64_t driver_calls = 0, requests = 0, peak = 0;
};

Change change_of_commits(c10::Device device, optim::Optimizer& optimizer) {
  memory::DeviceMemory& memory = memory::memory_of(device);
  Change change;
  for (int step = 0; step < 3; ++step) {
    for (at::Tensor parameter : optimizer.parameters())
      parameter.mutable_grad() = at::randn(parameter.sizes()).to(device, parameter.scalar_type());
    memory.synchronize(device.index());
    memory.empty_cache();  // whatever is asked for now has to come from the driver
    memory.reset_peaks(device.index());
    const memory::DeviceStats before = memory.statistics(device.index());
    optimizer.commit();
    memory.synchronize(device.index());
    const memory::DeviceStats after = memory.statistics(device.index());
    change.driver_calls += after.num_device_alloc - before.num_device_alloc;
    change.requests += after.allocation[0].allocated - before.allocation[0].allocated;
    change.peak += after.allocated_bytes[0].peak - before.allocated_bytes[0].current;
  }
  return change;
}

}  // namespace

Outcome check_commit(Place& place) {
  const c10::Device device = place.open();
  std::vector<std::string> complaints;
  Json figures = Json::object();
  int commits = 0;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const Kind& kind : kKinds) {
      const auto optimizer = kind.make(parameters(device, type));
      optimizer->reserve();
      const Change change = change_of_commits(device, *optimizer);
      commits += 3;
      const std::string name = std::string(kind.name) + (type == at::kFloat ? " fp32" : " bf16");
      figures[name] = {{"num_device_alloc", change.driver_calls},
                       {"requests", change.requests},
                       {"peak_rise", change.peak}};
      if (change.driver_calls != 0 || change.requests != 0 || change.peak != 0)
        complaints.push_back(name + ": num_device_alloc +" + std::to_string(change.driver_calls) +
                             ", requests +" + std::to_string(change.requests) + ", peak +" +
                             std::to_string(change.peak) + " bytes");
    }
  return judged(complaints,
                std::to_string(commits) + " commits: num_device_alloc +0, requests +0, peak +0",
                std::move(figures));
}

}  // namespace headroom::gpu_check
