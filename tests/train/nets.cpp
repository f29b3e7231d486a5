#include "nets.h"

#include <gtest/gtest.h>

#include "headroom/libtorch/on.h"
#include "headroom/libtorch/random_state.h"

namespace headroom::train {
namespace {

using torch::Tensor;

constexpr std::int64_t kRows = 7, kTokens = 5, kWords = 11, kWidth = 8;

struct TransformerImpl : torch::nn::Module {
  torch::nn::Embedding words{nullptr};
  torch::nn::TransformerEncoder layers{nullptr};
  torch::nn::Linear head{nullptr};

  TransformerImpl() {
    words = register_module("words", torch::nn::Embedding(kWords, kWidth));
    layers = register_module(
        "layers",
        torch::nn::TransformerEncoder(
            torch::nn::TransformerEncoderLayer(
                torch::nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(16).dropout(
                    0.2)),
            1));
    head = register_module("head", torch::nn::Linear(kWidth, kWords));
  }
  Tensor forward(const Tensor& tokens) {
    return head(layers(words(tokens).transpose(0, 1)).transpose(0, 1));
  }
};

struct ConvolutionsImpl : torch::nn::Module {
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d first_norm{nullptr}, second_norm{nullptr};
  torch::nn::Linear head{nullptr};

  ConvolutionsImpl() {
    using torch::nn::BatchNorm2dOptions, torch::nn::Conv2dOptions;
    first = register_module("first", torch::nn::Conv2d(Conv2dOptions(3, 4, 3).padding(1)));
    first_norm = register_module("first_norm", torch::nn::BatchNorm2d(4));
    second = register_module("second", torch::nn::Conv2d(Conv2dOptions(4, 6, 3).stride(2)));
    second_norm = register_module(  // averages over all batches
        "second_norm", torch::nn::BatchNorm2d(BatchNorm2dOptions(6).momentum(c10::nullopt)));
    head = register_module("head", torch::nn::Linear(6, 5));
  }
  Tensor forward(const Tensor& pixels) {
    Tensor x = first_norm(first(pixels)).relu();
    x = torch::dropout(second_norm(second(x)).relu(), 0.2, is_training());
    return head(x.mean({2, 3}));
  }
};

template <typename Net>
Training run_of(c10::Device device, const std::function<Net()>& make, const StepOptions& options,
                const std::function<Tensor(Net, const Tensors&)>& loss) {
  torch::manual_seed(3);
  Net net = libtorch::on(device, make);
  std::vector<Tensor> trained = net->parameters();
  std::erase_if(trained, [](const Tensor& parameter) { return !parameter.requires_grad(); });
  Training run{.module = net.ptr(),
               .optimizer = optim::make_adamw(
                   trained, {.learning_rate = 1e-2, .form = optim::OptimizerForm::fused}),
               .objective = {.loss = [net, loss](const Tensors& rows) { return loss(net, rows); }}};
  run.step = std::make_unique<Step>(*run.module, *run.optimizer, run.objective, options);
  torch::manual_seed(4);
  return run;
}

// The generators that tests and steps draw from are not touched.
template <typename Make>
Tensors drawn(int seed, const Make& make) {
  const libtorch::RandomState random(libtorch::devices_in_use());
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  Tensors batch = make();
  random.restore();
  return batch;
}

}  // namespace

TORCH_MODULE(Transformer);
TORCH_MODULE(Convolutions);

namespace {

Training transformer_of(c10::Device device, const StepOptions& options, bool head_alone) {
  const auto make = [head_alone] {
    Transformer net;
    for (const auto& parameter : net->named_parameters())
      parameter->set_requires_grad(!head_alone || parameter.key().starts_with("head."));
    return net;
  };
  Training run =
      run_of<Transformer>(device, make, options, [](Transformer net, const Tensors& rows) {
        return torch::nn::functional::cross_entropy(net->forward(rows[0]).flatten(0, 1),
                                                    rows[1].flatten());
      });
  run.batch = [](int step) {
    return drawn(100 + step, [] {
      return Tensors{torch::randint(kWords, {kRows, kTokens}),
                     torch::randint(kWords, {kRows, kTokens})};
    });
  };
  return run;
}

}  // namespace

Training transformer(c10::Device device, const StepOptions& options) {
  return transformer_of(device, options, false);
}
Training transformers_head(c10::Device device, const StepOptions& options) {
  return transformer_of(device, options, true);
}

Training convolutions(c10::Device device, const StepOptions& options) {
  Training run = run_of<Convolutions>(
      device, [] { return Convolutions(); }, options,
      [](Convolutions net, const Tensors& rows) {
        return torch::nn::functional::cross_entropy(net->forward(rows[0]), rows[1]);
      });
  run.batch = [](int step) {
    return drawn(200 + step, [] {
      return Tensors{torch::randn({kRows, 3, 9, 9}), torch::randint(5, {kRows})};
    });
  };
  return run;
}

Tensors everything(const Training& run) {
  Tensors copies;
  const auto copy = [&](const Tensor& tensor) { copies.push_back(tensor.detach().cpu().clone()); };
  for (const auto& parameter : run.module->named_parameters()) {
    EXPECT_FALSE(parameter->grad().defined()) << parameter.key();
    copy(*parameter);
  }
  for (const auto& buffer : run.module->named_buffers()) copy(*buffer);
  for (std::size_t i = 0; i < run.optimizer->parameters().size(); ++i)
    for (const auto& [name, state] : run.optimizer->state(i)) copy(state);
  const std::vector<c10::Device> devices = libtorch::devices_of(run.optimizer->parameters());
  const libtorch::RandomState random(devices);
  copy(torch::rand({2}));
  copy(torch::rand({2}, run.optimizer->parameters().front().device()));
  random.restore();
  return copies;
}

void expect_same(const Tensors& ours, const Tensors& right) {
  ASSERT_EQ(ours.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_TRUE(torch::equal(ours[i], right[i])) << i;
}

}  // namespace headroom::train
