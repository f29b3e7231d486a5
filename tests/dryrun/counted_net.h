// A net whose memory can be counted by hand, on a simulated card.
#pragma once

#include <torch/torch.h>

#include "headroom/dryrun/dry_run.h"
#include "headroom/libtorch/on.h"

namespace headroom::dryrun {

// y = W x + b of 1024 x 1024, twice, with a ReLU between: sizes that need no rounding.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(1024, 1024));
    second = register_module("second", torch::nn::Linear(1024, 1024));
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

inline torch::Tensor loss_of(NetImpl& net, const torch::Tensor& x) {
  return net.forward(x).sum();
}

struct OnACard {
  explicit OnACard(const char* spec = "1x24GiB") : box(sim::simulate(spec)) {
    net = libtorch::on(box.device(0), [] { return Net(); });
    batch = torch::empty({1024, 1024}, box.device(0));
  }
  template <typename Optimizer>
  trace::Report run(Optimizer& optimizer, const Options& options = {}) {
    return dry_run(*net, batch, loss_of, optimizer, options);
  }
  sim::Simulation box;
  Net net{nullptr};
  torch::Tensor batch;
};

}  // namespace headroom::dryrun
