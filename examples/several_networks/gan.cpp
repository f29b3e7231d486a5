// Two networks that train against each other, in steps that survive an out-of-memory: a generator
// learns to draw points on a circle, and a critic to tell them from real ones.
//
//   gan [DEVICE] [BATCH]        gan cuda 4096
#include <headroom/train/step.h>
#include <torch/torch.h>

#include <cmath>
#include <iostream>

namespace nn = torch::nn;
namespace optim = headroom::optim;
namespace train = headroom::train;

constexpr std::int64_t kNoise = 8, kWidth = 64;

torch::Tensor real_points(std::int64_t count) {
  const torch::Tensor angles = 2 * M_PI * torch::rand({count});
  return torch::stack({angles.cos(), angles.sin()}, 1) + 0.02 * torch::randn({count, 2});
}

// How far the points of the generator lie from the centre; 1 is right.
double mean_radius(nn::Sequential& generator, torch::Device device) {
  const torch::NoGradGuard no_gradients;
  return generator->forward(torch::randn({1000, kNoise}).to(device))
      .norm(2, 1)
      .mean()
      .item<double>();
}

torch::Tensor judged(const torch::Tensor& logits, double right) {
  return nn::functional::binary_cross_entropy_with_logits(logits, torch::full_like(logits, right));
}

int main(int argc, char** argv) {
  const torch::Device device(argc > 1 ? argv[1] : "cpu");
  const std::int64_t rows = argc > 2 ? std::stol(argv[2]) : 128;

  torch::manual_seed(1);
  nn::Sequential generator(nn::Linear(kNoise, kWidth), nn::BatchNorm1d(kWidth), nn::ReLU(),
                           nn::Linear(kWidth, kWidth), nn::ReLU(), nn::Linear(kWidth, 2));
  nn::Sequential critic(nn::Linear(2, kWidth), nn::LeakyReLU(), nn::Linear(kWidth, kWidth),
                        nn::LeakyReLU(), nn::Linear(kWidth, 1));
  generator->to(device);
  critic->to(device);
  const optim::AdamOptions options{
      .learning_rate = 2e-3, .beta1 = 0.5, .form = optim::OptimizerForm::fused};
  const auto generators = optim::make_adam(generator->parameters(), options);
  const auto critics = optim::make_adam(critic->parameters(), options);

  train::Step critic_step(*critic, *critics,
                          {.loss =
                               [&](const train::Tensors& batch) {
                                 const torch::Tensor drawn = generator->forward(batch[1]).detach();
                                 return judged(critic->forward(batch[0]), 1) +
                                        judged(critic->forward(drawn), 0);
                               },
                           .also = {generator.get()}});
  train::Step generator_step(*generator, *generators,
                             {.loss =
                                  [&](const train::Tensors& batch) {
                                    return judged(critic->forward(generator->forward(batch[0])), 1);
                                  },
                              .also = {critic.get()}});

  const auto noise = [&] { return torch::randn({rows, kNoise}); };
  critic_step.prepare({real_points(rows), noise()});  // prices are known before the first backward
  generator_step.prepare({noise()});
  for (int i = 0; i < 400; ++i) {
    critic_step.run({real_points(rows), noise()});
    generator_step.run({noise()});
  }
  std::cout << "mean radius " << mean_radius(generator, device) << " after "
            << generator_step.steps() << " steps\n";
}
