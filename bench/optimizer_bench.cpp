// AdamW's step beside LibTorch's own: the fused operator alone, and torch::optim::AdamW; and with
// states of 8 and 4 bits, and in bfloat16, rounded to nearest and stochastically. In turns in one
// process on the CPU. Prints medians, ratios to the first and to torch::optim::AdamW, and the bytes
// of a parameter's states.
//
//   bench_optimizer [millions of parameters] [tensors] [runs]     default 64 4 5: matrices of 4096 x
//                                                                 4096 or so, as a 7B model has
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "bench/measure.h"
#include "headroom/kernels/step.h"
#include "headroom/optim/optimizer.h"

namespace {

using namespace headroom;
using Tensors = std::vector<torch::Tensor>;

// The operator that the fused form calls, with states of its own.
std::function<void()> fused_operator(const Tensors& parameters) {
  Tensors values, gradients, first, second, steps;
  for (const torch::Tensor& parameter : parameters) {
    values.push_back(parameter.detach());
    gradients.push_back(parameter.grad());
    first.push_back(torch::zeros_like(values.back()));
    second.push_back(torch::zeros_like(values.back()));
    steps.push_back(torch::zeros({}));
  }
  return [=] {
    at::_foreach_add_(steps, 1);
    at::_fused_adamw_(values, gradients, first, second, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8,
                      false, false);
  };
}

struct Way {
  const char* name;
  std::function<void()> step;
  double state_bytes;
  std::vector<double> seconds = {};
};

double state_bytes(const optim::Optimizer& optimizer) {
  double bytes = 0, numbers = 0;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    numbers += static_cast<double>(optimizer.parameters()[i].numel());
    for (const auto& [name, tensor] : optimizer.state(i))
      bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes / numbers;
}

Way committing(const char* name, std::shared_ptr<optim::Optimizer> optimizer) {
  optimizer->reserve();
  return {name, [optimizer] { optimizer->commit(); }, state_bytes(*optimizer)};
}

// The same parameters and gradients in bfloat16.
Tensors in_bfloat16(const Tensors& parameters) {
  Tensors all;
  for (const torch::Tensor& parameter : parameters) {
    all.push_back(parameter.detach().to(at::kBFloat16).requires_grad_());
    all.back().mutable_grad() = parameter.grad().to(at::kBFloat16);
  }
  return all;
}

// bfloat16 rounded to nearest by the kernel that also rounds stochastically.
std::function<void()> nearest_operator(const Tensors& parameters) {
  kernels::StepLists lists;
  Tensors first, second;
  for (const torch::Tensor& parameter : parameters) {
    lists.parameters.push_back(parameter.detach());
    lists.gradients.push_back(parameter.grad());
    lists.steps.push_back(torch::ones({}));
    first.push_back(torch::zeros_like(lists.parameters.back()));
    second.push_back(torch::zeros_like(lists.parameters.back()));
  }
  return [=] { kernels::adamw_(lists, first, second, {}); };
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const long millions = given(1, 64), tensors = given(2, 4), runs = given(3, 5);
  Tensors parameters;
  for (long i = 0; i < tensors; ++i) {
    parameters.push_back(torch::randn({millions * 1'000'000 / tensors}).requires_grad_());
    parameters.back().mutable_grad() = torch::randn_like(parameters.back());
  }
  const auto ours = optim::make_adamw(parameters, {.form = optim::OptimizerForm::fused});
  ours->reserve();
  torch::optim::AdamW theirs(parameters, torch::optim::AdamWOptions(1e-3));
  const Tensors small = in_bfloat16(parameters);
  const optim::AdamWOptions stochastic{.form = optim::OptimizerForm::fused,
                                       .rounding = optim::Rounding::stochastic};
  std::vector<Way> ways{{"at::_fused_adamw_", fused_operator(parameters), 8},
                        {"commit(), fused", [&] { ours->commit(); }, 8},
                        {"step(), fused", [&] { ours->step(); }, 8},
                        {"torch::optim::AdamW", [&] { theirs.step(); }, 8},
                        committing("8 bit", optim::make_compact_adamw(parameters)),
                        committing("4 bit", optim::make_compact_adamw(parameters, {.bits = 4})),
                        {"bf16, nearest", nearest_operator(small), 4},
                        committing("bf16, stochastic", optim::make_adamw(small, stochastic))};
  for (long run = 0; run <= runs; ++run)
    for (Way& way : ways) {
      const Clock::time_point begin = Clock::now();
      way.step();
      if (run > 0) way.seconds.push_back(bench::seconds_since(begin));
    }
  std::printf("AdamW of %ld million parameters in %ld tensors, float, %d threads, medians of %ld\n",
              millions, tensors, at::get_num_threads(), runs);
  const double least = bench::median(ways[0].seconds), most = bench::median(ways[3].seconds);
  for (const Way& way : ways) {
    const double time = bench::median(way.seconds);
    std::printf("  %-20s %7.1f ms  %5.2f x  %5.2f x as fast as torch::optim  %5.2f bytes\n",
                way.name, time * 1e3, time / least, most / time, way.state_bytes);
  }
}
