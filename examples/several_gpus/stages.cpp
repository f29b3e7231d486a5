// A net that one GPU would not hold, cut over several: each has some of the layers, and they work
// at the same time on different parts of a batch. Without two GPUs it runs on simulated ones.
#include <headroom/memory/memory_statistics.h>
#include <headroom/sim/simulate.h>
#include <headroom/train/split.h>
#include <headroom/train/step.h>
#include <torch/torch.h>

#include <iostream>
#include <optional>
#include <vector>

namespace nn = torch::nn;
namespace memory = headroom::memory;
namespace optim = headroom::optim;
namespace sim = headroom::sim;
namespace train = headroom::train;

constexpr std::int64_t kWidth = 256;

struct BlockImpl : nn::Cloneable<BlockImpl> {
  BlockImpl() { reset(); }
  void reset() override {
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    up = register_module("up", nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", nn::Linear(4 * kWidth, kWidth));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + down->forward(torch::gelu(up(norm(x))));
  }
  nn::LayerNorm norm{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

int main() {
  torch::manual_seed(1);
  std::optional<sim::Simulation> box;
  std::vector<c10::Device> devices;
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus < 2) box.emplace(sim::simulate("3x1GiB", {.mode = sim::Mode::compute}));
  for (int i = 0; i < (box ? 3 : gpus); ++i)
    devices.push_back(box ? box->device(i)
                          : c10::Device(torch::kCUDA, static_cast<std::int8_t>(i)));

  nn::Sequential net(nn::Linear(8, kWidth));
  for (int i = 0; i < 10; ++i) net->push_back(Block());
  net->push_back(nn::Linear(kWidth, 1));

  train::Split split(net, {.devices = devices});
  train::StepOptions options;
  options.plan.micro_batch = 8;  // so a batch of 64 has eight parts, more than there are stages
  train::Step step(split.team(
                       [](const train::Tensors& parameters) {
                         return optim::make_adamw(
                             parameters,
                             {.learning_rate = 3e-3, .form = optim::OptimizerForm::fused});
                       },
                       [](const torch::Tensor& output, const train::Tensors& rows) {
                         return torch::mse_loss(output, rows[1]);
                       }),
                   options);
  double loss = 0;
  for (int i = 0; i < 100; ++i) {
    const torch::Tensor x = torch::randn({64, 8});
    loss = step.run({x, x.sum(1, /*keepdim=*/true)}).loss();
  }
  std::cout << "loss " << loss << " after " << step.steps() << " steps\n";
  for (const c10::Device device : step.devices())
    std::cout << device << ": at most "
              << to_string(memory::get_gpu_memory_stats(device).max_allocated) << "\n";
}
