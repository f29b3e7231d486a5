// Trains a small net of convolutions and batch norms on pictures that it makes up: before.cpp in an
// ordinary loop, after.cpp in steps that survive an out-of-memory.
//
//   before [DEVICE] [BATCH]        after cuda 256
#include <headroom/train/step.h>
#include <torch/torch.h>

#include <iostream>

namespace nn = torch::nn;

constexpr std::int64_t kClasses = 4, kSide = 32;

struct NetImpl : nn::Module {
  NetImpl() {
    const auto convolution = [](int from, int to) {
      return nn::Conv2d(nn::Conv2dOptions(from, to, 3).stride(2).padding(1));
    };
    layers = register_module(
        "layers",
        nn::Sequential(convolution(3, 32), nn::BatchNorm2d(32), nn::ReLU(), convolution(32, 64),
                       nn::BatchNorm2d(64), nn::ReLU(), nn::AdaptiveAvgPool2d(1), nn::Flatten(),
                       nn::Linear(64, kClasses)));
  }
  torch::Tensor forward(const torch::Tensor& pictures) { return layers->forward(pictures); }
  torch::Tensor loss(const torch::Tensor& pictures, const torch::Tensor& classes) {
    return nn::functional::cross_entropy(forward(pictures), classes);
  }
  nn::Sequential layers;
};
TORCH_MODULE(Net);

// Noise over waves, whose length tells the class.
struct Pictures : torch::data::Dataset<Pictures> {
  torch::data::Example<> get(std::size_t index) override {
    const auto its_class = static_cast<std::int64_t>(index) % kClasses;
    const torch::Tensor waves = torch::sin(torch::arange(kSide) * (its_class + 1) / 2.0);
    return {2 * torch::randn({3, kSide, kSide}) + waves, torch::tensor(its_class)};
  }
  torch::optional<std::size_t> size() const override { return 1000; }
};

auto batches_of(std::size_t size) {
  return torch::data::make_data_loader(Pictures().map(torch::data::transforms::Stack<>()), size);
}

// The share of pictures whose class the net tells.
double accuracy(Net& net, torch::Device device) {
  const torch::NoGradGuard no_gradients;
  net->eval();
  const auto loader = batches_of(50);
  std::int64_t right = 0, all = 0;
  for (const auto& batch : *loader) {
    const torch::Tensor guesses = net->forward(batch.data.to(device)).argmax(1);
    right += (guesses == batch.target.to(device)).sum().item<std::int64_t>();
    all += batch.target.size(0);
  }
  net->train();
  return static_cast<double>(right) / static_cast<double>(all);
}

int main(int argc, char** argv) {
  const torch::Device device(argc > 1 ? argv[1] : "cpu");
  const auto loader = batches_of(argc > 2 ? std::stoul(argv[2]) : 64);

  torch::manual_seed(1);
  Net net;
  net->to(device);
  namespace optim = headroom::optim;
  auto optimizer = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
  headroom::train::Step step(*net, *optimizer, {[&](auto& r) { return net->loss(r[0], r[1]); }});

  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (const auto& batch : *loader) {
      step.run({batch.data, batch.target});
    }
    std::cout << "epoch " << epoch << ": " << 100 * accuracy(net, device) << " % right\n";
  }
}
