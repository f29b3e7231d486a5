// A small network learns from a large one, the teacher, in steps that survive an out-of-memory. An
// average of the student's weights goes along.
//
//   distillation [DEVICE] [BATCH]        distillation cuda 4096
#include <headroom/train/step.h>
#include <torch/torch.h>

#include <iostream>

namespace nn = torch::nn;
namespace optim = headroom::optim;
namespace train = headroom::train;

constexpr std::int64_t kInputs = 8, kClasses = 4;
constexpr double kTemperature = 2;

nn::Sequential network(std::int64_t width) {
  return nn::Sequential(nn::Linear(kInputs, width), nn::ReLU(), nn::Linear(width, width),
                        nn::ReLU(), nn::Linear(width, kClasses));
}

void average(nn::Sequential& into, nn::Sequential& from) {
  const torch::NoGradGuard no_gradients;
  const auto values = from->parameters();
  for (std::size_t i = 0; i < values.size(); ++i) into->parameters()[i].lerp_(values[i], 0.05);
}

// The share of inputs for which both name the same class.
double agreement(nn::Sequential& one, nn::Sequential& other, torch::Device device) {
  const torch::NoGradGuard no_gradients;
  const torch::Tensor inputs = torch::randn({1000, kInputs}).to(device);
  const torch::Tensor same = one->forward(inputs).argmax(1) == other->forward(inputs).argmax(1);
  return same.to(torch::kFloat).mean().item<double>();
}

int main(int argc, char** argv) {
  const torch::Device device(argc > 1 ? argv[1] : "cpu");
  const std::int64_t rows = argc > 2 ? std::stol(argv[2]) : 128;

  torch::manual_seed(1);
  nn::Sequential teacher = network(256), student = network(64), averaged = network(64);
  for (nn::Sequential* one : {&teacher, &student, &averaged}) (*one)->to(device);
  {
    const torch::NoGradGuard no_gradients;
    for (torch::Tensor weight : teacher->parameters()) weight.mul_(3);  // sure of its answers
    for (std::size_t i = 0; i < student->parameters().size(); ++i)
      averaged->parameters()[i].copy_(student->parameters()[i]);
  }
  teacher->eval();
  for (const torch::Tensor& weight : teacher->parameters()) weight.requires_grad_(false);

  const auto optimizer = optim::make_adamw(
      student->parameters(), {.learning_rate = 3e-3, .form = optim::OptimizerForm::fused});
  train::Step step(*student, *optimizer,
                   {.loss =
                        [&](const train::Tensors& batch) {
                          const torch::Tensor right =
                              torch::softmax(teacher->forward(batch[0]) / kTemperature, 1);
                          const torch::Tensor said =
                              torch::log_softmax(student->forward(batch[0]) / kTemperature, 1);
                          return torch::kl_div(said, right, at::Reduction::Sum) / batch[0].size(0);
                        },
                    .also = {teacher.get()}});
  for (int i = 0; i < 1000; ++i) {
    step.run({torch::randn({rows, kInputs})});
    average(averaged, student);  // after the step, which is committed
  }
  std::cout << "the student agrees with its teacher in "
            << 100 * agreement(student, teacher, device) << " %, its average in "
            << 100 * agreement(averaged, teacher, device) << " %\n";
}
