#include "headroom/sim/rules/cpu_function.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <mutex>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/device/generator.h"
#include "headroom/sim/device/running_operator.h"

namespace headroom::sim::rules {
namespace {

constexpr std::size_t kStates = 4096;

struct States {
  std::mutex mutex;
  std::int64_t last_number = 0;
  std::deque<std::pair<std::int64_t, at::Tensor>>
      kept;  // by number, ascending except for races of threads
};

States& states() {
  static States& all = *new States;
  return all;
}

thread_local std::int64_t last_of_thread = 0;

}  // namespace

FromTheTop::FromTheTop(bool with_gradients)
    : keys_(c10::default_included_set, c10::default_excluded_set), gradients_(with_gradients) {}

std::int64_t number_a_random_state() {
  States& all = states();
  const std::lock_guard lock(all.mutex);
  return last_of_thread = ++all.last_number;
}

std::int64_t last_random_state() {
  return last_of_thread;
}

at::Generator keep_random_state() {
  at::Generator generator = detail::on_cpu(detail::running.card->generator());
  at::Tensor state;
  {
    const std::lock_guard lock(generator.mutex());
    state = generator.get_state();
  }
  States& all = states();
  const std::lock_guard lock(all.mutex);
  all.kept.emplace_back(last_of_thread, std::move(state));
  if (all.kept.size() > kStates) all.kept.pop_front();
  return generator;
}

at::Generator random_state(std::int64_t number) {
  States& all = states();
  const std::lock_guard lock(all.mutex);
  for (auto at = all.kept.rbegin(); at != all.kept.rend(); ++at)
    if (at->first == number) {
      at::Generator generator = at::detail::createCPUGenerator();
      generator.set_state(at->second);
      return generator;
    }
  throw libtorch::DeviceError(
      expectation("sim",
                  "a backward pass of one of the last " + std::to_string(kStates) +
                      " forward calls with dropout",
                  "one whose random state is gone", "run backward before that many further calls"));
}

at::Tensor dropped_out(const at::Tensor& x, double p, const at::Generator& generator) {
  if (p == 0 || x.numel() == 0) return x;
  if (p == 1) return x.mul(at::zeros({}, x.options()));
  at::Tensor noise = at::empty_like(x);
  noise.bernoulli_(1 - p, generator);
  noise.div_(1 - p);
  return x * noise;
}

at::Tensor leaf(const at::Tensor& x, bool wants_gradient) {
  return x.defined() ? x.detach().requires_grad_(wants_gradient) : x;
}

std::vector<at::Tensor> gradients_of(const std::vector<OutputAndGradient>& outputs_and_gradients,
                                     const std::vector<at::Tensor>& inputs) {
  torch::autograd::variable_list outputs, gradients;
  for (const auto& [output, gradient] : outputs_and_gradients) {
    if (!gradient || !gradient->defined() || !output.defined()) continue;
    outputs.push_back(output);
    gradients.push_back(*gradient);
  }
  return torch::autograd::grad(outputs, inputs, gradients, {}, false, true);
}

}  // namespace headroom::sim::rules
