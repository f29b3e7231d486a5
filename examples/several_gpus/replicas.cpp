// One model on each GPU: replicas divide the rows of a batch and add up their gradients, in steps
// that survive an out-of-memory on any of them. Without two GPUs it runs on simulated ones.
#include <headroom/parallel/replicas.h>
#include <headroom/sim/simulate.h>
#include <headroom/train/step.h>
#include <torch/torch.h>

#include <iostream>
#include <memory>
#include <optional>
#include <vector>

namespace nn = torch::nn;
namespace optim = headroom::optim;
namespace parallel = headroom::parallel;
namespace sim = headroom::sim;
namespace train = headroom::train;

// Says in which of four quarters of the plane a point lies.
struct NetImpl : nn::Module {
  NetImpl() {
    in = register_module("in", nn::Linear(2, 64));
    norm = register_module("norm", nn::BatchNorm1d(64));
    out = register_module("out", nn::Linear(64, 4));
  }
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(norm(in(x)))); }
  nn::Linear in{nullptr}, out{nullptr};
  nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);
  std::optional<sim::Simulation> box;
  std::vector<c10::Device> devices;
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (gpus < 2) box.emplace(sim::simulate("4x1GiB", {.mode = sim::Mode::compute}));
  for (int i = 0; i < (box ? 4 : gpus); ++i)
    devices.push_back(box ? box->device(i)
                          : c10::Device(torch::kCUDA, static_cast<std::int8_t>(i)));

  parallel::Replicas<Net> net(devices, [] { return Net(); });
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  train::Team team;
  for (Net& one : net) {
    optimizers.push_back(optim::make_adamw(
        one->parameters(), {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused}));
    team.ranks.push_back(
        {*one, *optimizers.back(), {.loss = [one](const train::Tensors& rows) mutable {
           return nn::functional::cross_entropy(one->forward(rows[0]), rows[1]);
         }}});
  }
  train::Step step(team);
  double loss = 0;
  for (int i = 0; i < 100; ++i) {
    const torch::Tensor points = torch::randn({256, 2});
    const torch::Tensor quarters =
        2 * (points.select(1, 0) > 0).to(torch::kLong) + (points.select(1, 1) > 0).to(torch::kLong);
    loss = step.run({points, quarters}).loss();  // as with one card: the whole batch
  }
  std::cout << "loss " << loss << " after " << step.steps() << " steps on " << net.size()
            << " cards\n";
}
