// AdamW's step beside LibTorch's own: the fused operator alone, and torch::optim::AdamW. In turns
// in one process on the CPU. Prints medians and ratios.
//
//   bench_optimizer [millions of parameters] [tensors] [runs]     default 64 16 5
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "bench/measure.h"
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

}  // namespace

int main(int argc, char** argv) {
  const bench::Arguments given(argc, argv);
  const long millions = given(1, 64), tensors = given(2, 16), runs = given(3, 5);
  Tensors parameters;
  for (long i = 0; i < tensors; ++i) {
    parameters.push_back(torch::randn({millions * 1'000'000 / tensors}).requires_grad_());
    parameters.back().mutable_grad() = torch::randn_like(parameters.back());
  }
  const auto ours = optim::make_adamw(parameters, {.form = optim::OptimizerForm::fused});
  ours->reserve();
  torch::optim::AdamW theirs(parameters, torch::optim::AdamWOptions(1e-3));
  struct Way {
    const char* name;
    std::function<void()> step;
    std::vector<double> seconds;
  };
  std::vector<Way> ways{{"at::_fused_adamw_", fused_operator(parameters), {}},
                        {"commit(), fused", [&] { ours->commit(); }, {}},
                        {"step(), fused", [&] { ours->step(); }, {}},
                        {"torch::optim::AdamW", [&] { theirs.step(); }, {}}};
  for (long run = 0; run <= runs; ++run)
    for (Way& way : ways) {
      const Clock::time_point begin = Clock::now();
      way.step();
      if (run > 0) way.seconds.push_back(bench::seconds_since(begin));
    }
  std::printf("AdamW of %ld million parameters in %ld tensors, float, %d threads, medians of %ld\n",
              millions, tensors, at::get_num_threads(), runs);
  const double least = bench::median(ways[0].seconds);
  for (const Way& way : ways)
    std::printf("  %-20s %7.1f ms  %5.2f x\n", way.name, bench::median(way.seconds) * 1e3,
                bench::median(way.seconds) / least);
}
