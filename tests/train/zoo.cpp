#include "zoo.h"

#include "headroom/libtorch/on.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/libtorch/stored_weight.h"

namespace headroom::train {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;
using torch::nn::Sequential;

constexpr std::int64_t kZooRows = 8;

Sequential on_device(c10::Device device, const std::function<Sequential()>& make) {
  return libtorch::on(device, make);
}

void add_step(Animal& animal, const std::shared_ptr<torch::nn::Module>& module, Objective objective,
              const StepOptions& options) {
  animal.optimizers.push_back(optim::make_adamw(
      module->parameters(), {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused}));
  animal.steps.push_back(
      std::make_unique<Step>(*module, *animal.optimizers.back(), std::move(objective), options));
}

void add_batches(Animal& animal, const std::function<Tensors()>& make) {
  torch::manual_seed(5);
  animal.batches = {make(), make()};
  torch::manual_seed(6);
}

Sequential perceptron(std::int64_t in, std::int64_t out) {
  return Sequential(torch::nn::Linear(in, 6), torch::nn::BatchNorm1d(6),
                    torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)),
                    torch::nn::Linear(6, out));
}

Sequential image_net() {
  return Sequential(torch::nn::Conv2d(2, 4, 3), torch::nn::BatchNorm2d(4),
                    torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)), torch::nn::Flatten(),
                    torch::nn::Linear(4 * 4 * 4, 3));
}

// Both networks have batch norm in training mode. The discriminator's loss does not detach what the
// generator makes, so that it leaves gradients in it.
Animal gan(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential generator = on_device(device, [] { return perceptron(3, 5); });
  Sequential critic = on_device(device, [] { return perceptron(5, 1); });
  animal.modules = {generator.ptr(), critic.ptr()};
  auto made = [generator, device](std::int64_t rows) mutable {
    return generator->forward(torch::randn({rows, 3}, device));
  };
  auto is_real = [critic](const Tensor& x, bool real) mutable {
    const Tensor score = critic->forward(x);
    return F::binary_cross_entropy_with_logits(
        score, real ? torch::ones_like(score) : torch::zeros_like(score));
  };
  add_step(animal, critic.ptr(),
           {.loss =
                [=](const Tensors& rows) mutable {
                  return is_real(rows[0], true) + is_real(made(rows[0].size(0)), false);
                }},
           options);
  add_step(
      animal, generator.ptr(),
      {.loss = [=](const Tensors& rows) mutable { return is_real(made(rows[0].size(0)), true); }},
      options);
  add_batches(animal, [] { return Tensors{torch::randn({kZooRows, 5})}; });
  return animal;
}

// The teacher is in training mode: its batch norm follows the student's data.
Animal teacher(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential student = on_device(device, image_net), wise = on_device(device, image_net);
  animal.modules = {student.ptr(), wise.ptr()};
  add_step(animal, student.ptr(),
           {.loss =
                [=](const Tensors& rows) mutable {
                  const Tensor wanted = [&] {
                    const torch::NoGradGuard no_grad;
                    return wise->forward(rows[0]);
                  }();
                  return F::mse_loss(student->forward(rows[0]), wanted);
                },
            .also = {wise.get()}},
           options);
  add_batches(animal, [] { return Tensors{torch::randn({kZooRows, 2, 6, 6})}; });
  return animal;
}

// The loss moves the average first, as a momentum encoder, and compares with it.
Animal average(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential net = on_device(device, [] { return perceptron(4, 3); });
  Sequential slow = on_device(device, [] { return perceptron(4, 3); });
  animal.modules = {net.ptr(), slow.ptr()};
  add_step(animal, net.ptr(),
           {.loss =
                [=](const Tensors& rows) mutable {
                  const Tensor wanted = [&] {
                    const torch::NoGradGuard no_grad;
                    for (std::size_t i = 0; i < net->parameters().size(); ++i)
                      slow->parameters()[i].lerp_(net->parameters()[i], 0.1);
                    return slow->forward(rows[0]);
                  }();
                  return F::mse_loss(net->forward(rows[0] + torch::randn_like(rows[0])), wanted);
                }},
           options);
  add_batches(animal, [] { return Tensors{torch::randn({kZooRows, 4})}; });
  return animal;
}

// With sums of its losses on the card, and rows that lie there and are changed in place.
Animal autoencoder(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential encoder = on_device(device, [] { return perceptron(5, 4); });
  Sequential decoder = on_device(device, [] { return perceptron(2, 5); });
  const auto both = std::make_shared<torch::nn::Module>("autoencoder");
  both->register_module("encoder", encoder);
  both->register_module("decoder", decoder);
  animal.modules = {both};
  const Tensor sum = torch::zeros({}, device);
  animal.others = {sum};
  add_step(animal, both,
           {.loss =
                [=](const Tensors& rows) mutable {
                  rows[0].div_(2);
                  const std::vector<Tensor> code = encoder->forward(rows[0]).chunk(2, 1);
                  const Tensor sample = code[0] + torch::randn_like(code[0]) * code[1].exp();
                  const Tensor loss = F::mse_loss(decoder->forward(sample), rows[0]) +
                                      0.1 * (code[0].square() + code[1].exp() - code[1]).mean();
                  sum.add_(loss.detach());
                  return loss;
                }},
           options);
  add_batches(animal, [&] { return Tensors{torch::randn({kZooRows, 5}).to(device)}; });
  return animal;
}

struct TiedImpl : torch::nn::Module {
  torch::nn::Embedding words{nullptr};
  TiedImpl() { words = register_module("words", torch::nn::Embedding(9, 4)); }
  Tensor forward(const Tensor& tokens) {
    return torch::dropout(words(tokens), 0.2, is_training()).matmul(words->weight.t());
  }
};
TORCH_MODULE(Tied);

Animal tied_head(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Tied net = libtorch::on(device, [] { return Tied(); });
  animal.modules = {net.ptr()};
  add_step(animal, net.ptr(),
           {.loss =
                [=](const Tensors& rows) mutable {
                  return F::cross_entropy(net->forward(rows[0]).flatten(0, 1), rows[1].flatten());
                }},
           options);
  add_batches(animal, [] {
    return Tensors{torch::randint(9, {kZooRows, 4}), torch::randint(9, {kZooRows, 4})};
  });
  return animal;
}

// A mean over classes of unequal weight, and a mask that is no buffer.
Animal class_weights(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential net = on_device(device, [] { return perceptron(4, 3); });
  animal.modules = {net.ptr()};
  const Tensor weights = torch::tensor({1.F, 2.F, 3.F}).to(device);
  const Tensor mask = torch::tensor({1.F, 1.F, 0.F, 1.F}).to(device);
  add_step(animal, net.ptr(),
           {.loss =
                [=](const Tensors& rows) mutable {
                  return F::cross_entropy(net->forward(rows[0] * mask), rows[1],
                                          F::CrossEntropyFuncOptions().weight(weights));
                }},
           options);
  add_batches(animal, [] {
    return Tensors{torch::randn({kZooRows, 4}), torch::randint(3, {kZooRows})};
  });
  return animal;
}

// Batch norm over rows alone needs two of them.
template <std::int64_t rows>
Animal batch_norm_of(c10::Device device, const StepOptions& options) {
  Animal animal;
  torch::manual_seed(1);
  Sequential net = on_device(device, [] { return perceptron(4, 3); });
  animal.modules = {net.ptr()};
  add_step(animal, net.ptr(),
           {.loss =
                [=](const Tensors& some) mutable {
                  return F::cross_entropy(net->forward(some[0]), some[1]);
                }},
           options);
  add_batches(animal, [] { return Tensors{torch::randn({rows, 4}), torch::randint(3, {rows})}; });
  return animal;
}

}  // namespace

Tensors Animal::everything() const {
  Tensors copies;
  const auto copy = [&](const Tensor& tensor) {
    if (tensor.defined()) copies.push_back(tensor.detach().cpu().clone());
  };
  for (const auto& module : modules) {
    for (const auto& [name, tensor] : libtorch::tensors_of(*module)) copy(tensor);
  }
  for (const auto& optimizer : optimizers)
    for (std::size_t i = 0; i < optimizer->parameters().size(); ++i)
      for (const auto& [name, state] : optimizer->state(i)) copy(state);
  for (const Tensor& other : others) copy(other);
  for (const Tensors& batch : batches)
    for (const Tensor& one : batch) copy(one);
  const libtorch::RandomState random(libtorch::devices_in_use());
  copy(torch::rand({2}));
  copy(torch::rand({2}, modules.front()->parameters().front().device()));
  random.restore();
  return copies;
}

const std::vector<Species>& zoo() {
  static const std::vector<Species> all = {{"gan", gan},
                                           {"teacher", teacher},
                                           {"average", average},
                                           {"autoencoder", autoencoder},
                                           {"tied_head", tied_head},
                                           {"class_weights", class_weights},
                                           {"batch_norm_64", batch_norm_of<64>},
                                           {"batch_norm_5", batch_norm_of<5>},
                                           {"batch_norm_2", batch_norm_of<2>}};
  return all;
}

}  // namespace headroom::train
