#include "headroom/nn/quantise.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <tuple>

#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/libtorch/stored_weight.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/lora.h"
#include "headroom/nn/offload.h"
#include "headroom/nn/stacked_experts.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"
#include "tests/nn/unpacked.h"

namespace headroom::nn {
namespace {

using kernels::Format;
using torch::Tensor;

constexpr Format kFormats[] = {Format::nf4, Format::int8};

// ---- Model types ----

class Quantise : public ::testing::TestWithParam<std::string> {
 protected:
  using Wrap = std::function<std::vector<Tensor>(models::Model&)>;

  static std::vector<Tensor> results(models::Model& model) {
    return loss_and_gradients(model, false);
  }

  // The worst of loss and gradients, between a quantised model with adapters and the same one
  // unpacked.
  static double difference(const std::string& type, Format format, at::ScalarType floats,
                           const models::Settings& settings = {}, const Wrap& run = results) {
    const auto quantised = tiny_model(type, settings), whole = tiny_model(type, settings);
    for (const auto& model : {quantised, whole}) {
      to_type(model->module(), floats);
      quantise(model->module(), {.format = format});
      add_adapters(model->module());
      if (settings.checkpointing.how != Recompute::none) require_input_gradients(model->module());
    }
    unpack(whole->module());
    const std::int64_t before = whole_weights();
    const std::vector<Tensor> one = run(*quantised);
    EXPECT_EQ(whole_weights(), before) << "operators that unpack a whole weight";
    const std::vector<Tensor> other = run(*whole);
    EXPECT_TRUE(std::any_of(other.begin() + 1, other.end(),
                            [](const Tensor& each) { return each.defined(); }));
    return distance(one, other);
  }
};

std::vector<std::string> types_with_linear_layers() {
  std::vector<std::string> all = model::model_types();
  std::erase(all, "resnet");
  return all;
}

INSTANTIATE_TEST_SUITE_P(Types, Quantise, ::testing::ValuesIn(types_with_linear_layers()),
                         [](const auto& type) { return type.param; });

TEST_P(Quantise, GradientsAreThoseOfTheUnpackedModel) {
  for (const Format format : kFormats) {
    EXPECT_LE(difference(GetParam(), format, torch::kFloat), 1e-5);
    if (GetParam() == "mixtral") continue;  // at::_grouped_mm has no double
    EXPECT_LE(difference(GetParam(), format, torch::kDouble), 1e-12);
  }
}

TEST_P(Quantise, AlsoWithCheckpointing) {
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
    EXPECT_LE(difference(GetParam(), Format::nf4, torch::kFloat, {.checkpointing = {.how = how}}),
              1e-5);
}

TEST_P(Quantise, AlsoUnderAutocast) {
  const auto mixed = [](models::Model& model) { return loss_and_gradients(model, true); };
  EXPECT_LE(difference(GetParam(), Format::nf4, torch::kFloat, {}, mixed), 1e-5);
}

// ---- Products ----

struct LayerCase {
  std::string name;
  std::function<std::shared_ptr<torch::nn::Module>()> make;
  std::function<Tensor(torch::nn::Module&, const Tensor&)> run;
};

template <typename Layer>
Tensor run_layer(torch::nn::Module& layer, const Tensor& x) {
  if constexpr (requires { &Layer::forward; })
    return dynamic_cast<Layer&>(layer).forward(x);
  else
    return dynamic_cast<Layer&>(layer)(x);
}

// Each has two tiles of rows, and two of columns.
const std::vector<LayerCase>& layer_cases() {
  static const std::vector<LayerCase> all = {
      {"TorchLinear", [] { return torch::nn::Linear(2080, 2100).ptr(); },
       run_layer<torch::nn::LinearImpl>},
      {"Linear", [] { return std::make_shared<Linear>(2080, 2100); }, run_layer<Linear>},
      {"Conv1D", [] { return std::make_shared<Conv1D>(2080, 2100); }, run_layer<Conv1D>},
  };
  return all;
}

class Product : public ::testing::TestWithParam<LayerCase> {
 protected:
  // Of result and gradients of input and bias.
  static double difference(Format format, at::ScalarType floats, c10::Device device) {
    torch::manual_seed(1);
    const auto layer = libtorch::on(device, GetParam().make);
    for (Tensor& parameter : layer->parameters()) parameter.detach().normal_();
    layer->to(floats);
    const Tensor x = torch::randn({2, 9, 2080}).to(device, floats).requires_grad_();
    const auto run = [&] {
      const Tensor y = GetParam().run(*layer, x);
      torch::manual_seed(2);
      const Tensor weights = torch::randn({2, 9, 2100}).to(device, floats);
      x.mutable_grad().reset();
      for (Tensor& parameter : layer->parameters()) parameter.mutable_grad().reset();
      (y * weights).sum().backward();
      std::vector<Tensor> all = {y.detach(), x.grad()};
      for (const auto& item : layer->named_parameters())
        if (item.key() == "bias") all.push_back(item.value().grad());
      return all;
    };
    quantise(*layer, {.format = format});
    const std::vector<Tensor> one = run();
    unpack(*layer);
    layer->named_parameters()["weight"].set_requires_grad(false);
    return distance(one, run());
  }
};

INSTANTIATE_TEST_SUITE_P(Layers, Product, ::testing::ValuesIn(layer_cases()),
                         [](const auto& layer) { return layer.param.name; });

TEST_P(Product, EqualsThatOfTheUnpackedLayer) {
  for (const Format format : kFormats)
    EXPECT_LE(difference(format, torch::kFloat, torch::kCPU), 1e-5);
  EXPECT_LE(difference(Format::nf4, torch::kDouble, torch::kCPU), 1e-12);
  EXPECT_LE(difference(Format::int8, torch::kBFloat16, torch::kCPU), 4e-3);
}

TEST_P(Product, EqualsThatOfTheUnpackedLayerOnACard) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const Format format : kFormats)
    EXPECT_LE(difference(format, torch::kFloat, box.device(0)), 1e-5);
}

TEST(QuantisedProduct, HasASecondDerivative) {
  torch::manual_seed(1);
  Linear layer(2080, 2100);
  for (Tensor& parameter : layer.parameters()) parameter.detach().normal_(0, 0.02);
  quantise(layer);
  const Tensor x = torch::randn({4, 2080}).requires_grad_();
  const auto twice = [&] {
    const Tensor y = layer(x).pow(3).sum();
    const Tensor first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {x})[0];
  };
  const Tensor one = twice();
  unpack(layer);
  EXPECT_LE(distance({one}, {twice()}), 1e-5);
}

TEST(QuantisedProduct, AutogradKeepsNothingOfIt) {
  Linear layer(512, 512, false);
  for (Tensor& parameter : layer.parameters()) parameter.detach().normal_();
  quantise(layer);
  int saved = 0;
  Tensor y;
  {
    const libtorch::SavedTensorScope scope([&](const Tensor& tensor) -> libtorch::Unpack {
      ++saved;
      return [tensor] { return tensor; };
    });
    y = layer(torch::randn({4, 512}).requires_grad_());
  }
  EXPECT_EQ(saved, 0);
  y.sum().backward();
}

void expect_experts_equal_unpacked_ones(std::int64_t count, std::int64_t width,
                                        std::int64_t inner) {
  torch::manual_seed(1);
  StackedExperts experts(count, width, inner, activation("silu"));
  for (Tensor& parameter : experts.parameters()) parameter.detach().normal_();
  const Tensor states = torch::randn({7, width}).requires_grad_();
  // No token goes to expert 3.
  const Tensor chosen =
      torch::arange(14).remainder(3).add(torch::arange(14).remainder(2)).view({7, 2});
  const Tensor shares = torch::rand({7, 2});
  const auto run = [&] {
    states.mutable_grad().reset();
    const Tensor y = experts(states, chosen, shares);
    y.pow(2).sum().backward();
    return std::vector<Tensor>{y.detach(), states.grad()};
  };
  for (const Format format : kFormats) {
    EXPECT_EQ(quantise(experts, {.format = format}), 2U);
    const std::int64_t before = whole_weights();
    const std::vector<Tensor> one = run();
    EXPECT_EQ(whole_weights(), before);
    unpack(experts);
    EXPECT_LE(distance(one, run()), 1e-5);
  }
}

TEST(QuantisedProduct, ExpertsEqualTheUnpackedOnes) {
  expect_experts_equal_unpacked_ones(5, 32, 48);
}

TEST(QuantisedProduct, ExpertsInSeveralTilesEqualTheUnpackedOnes) {
  expect_experts_equal_unpacked_ones(128, 512, 160);
}

// ---- Modules of one's own ----

struct OwnImpl : torch::nn::Module {
  OwnImpl()
      : in(register_module("in", torch::nn::Linear(24, 40))),
        attention(register_module("attention", torch::nn::MultiheadAttention(40, 4))),
        out(register_module("out",
                            torch::nn::Linear(torch::nn::LinearOptions(40, 8).bias(false)))) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = torch::gelu(in(x));
    return out(std::get<0>(attention(h, h, h)));
  }
  torch::nn::Linear in;
  torch::nn::MultiheadAttention attention;
  torch::nn::Linear out;
};
TORCH_MODULE(Own);

TEST(Quantise, WorksInModulesOfTorch) {
  for (const auto& [floats, most] : {std::pair{torch::kFloat, 1e-5}, {torch::kDouble, 1e-12}}) {
    torch::manual_seed(1);
    Own net;
    net->to(floats);
    EXPECT_EQ(quantise(*net), 3U);
    const Lora lora = add_adapters(*net);
    const Tensor x = torch::randn({5, 3, 24}).to(floats);
    const auto run = [&] {
      std::vector<Tensor> all = {net(x).detach()};
      net->zero_grad();
      net(x).pow(2).sum().backward();
      for (const auto& [name, parameter] : lora.parameters())
        all.push_back(parameter.grad().clone());
      return all;
    };
    const std::int64_t before = whole_weights();
    const std::vector<Tensor> one = run();
    EXPECT_EQ(whole_weights(), before);
    unpack(*net);
    EXPECT_LE(distance(one, run()), most);
  }
}

// ---- Cards ----

std::vector<Tensor> on_card(const std::string& type, c10::Device device, Offload* offload) {
  const auto model = tiny_model(type, {}, device);
  quantise(model->module());
  add_adapters(model->module());
  const models::Batch batch = tiny_batch(*model, device);
  const auto forward = [&] {
    if (offload == nullptr) return model->run(batch).loss;
    const auto scope = offload->scope();
    return model->run(batch).loss;
  };
  const Tensor loss = forward();
  loss.backward();
  std::vector<Tensor> all = {loss.detach().cpu()};
  for (const Tensor& parameter : model->module().parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad().cpu());
  return all;
}

TEST_P(Quantise, ComputesOnACardWhatItDoesOnTheCpu) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const std::vector<Tensor> there = on_card(GetParam(), box.device(0), nullptr);
  EXPECT_LE(distance(there, on_card(GetParam(), torch::kCPU, nullptr)), 1e-5);
  Offload offload({}, {.smallest = Bytes{0}});
  const std::vector<Tensor> offloaded = on_card(GetParam(), box.device(0), &offload);
  EXPECT_GT(offload.use().moved, 0);
  for (std::size_t i = 0; i < there.size(); ++i) EXPECT_TRUE(there[i].equal(offloaded[i])) << i;
}

TEST(QuantiseOnACard, AProductHasTheBitsOfTheCpu) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const Format format : kFormats) {
    torch::manual_seed(1);
    const auto layer = std::make_shared<Linear>(256, 512);
    for (Tensor& parameter : layer->parameters()) parameter.detach().normal_();
    quantise(*layer, {.format = format});
    const Tensor x = torch::randn({2, 5, 256});
    const auto run = [&](c10::Device device) {
      libtorch::move(*layer, device);
      const Tensor here = x.to(device, torch::kFloat, false, true).requires_grad_();
      const Tensor y = (*layer)(here);
      y.pow(2).sum().backward();
      return std::pair(y.detach().cpu(), here.grad().cpu());
    };
    const auto on_cpu = run(torch::kCPU), on_card = run(box.device(0));
    EXPECT_TRUE(on_cpu.first.equal(on_card.first));
    EXPECT_TRUE(on_cpu.second.equal(on_card.second));
  }
}

TEST(QuantiseOnACard, MovesToTheCpuAndBack) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  const auto model = tiny_model("llama");
  quantise(model->module());
  const models::Batch batch = tiny_batch(*model);
  const Tensor before = model->run(batch).logits;
  libtorch::move(model->module(), box.device(0));
  const Tensor there = model->run(tiny_batch(*model, box.device(0))).logits.cpu();
  EXPECT_TRUE(there.allclose(before, 1e-4, 1e-5));
  model->module().to(torch::kCPU);
  EXPECT_TRUE(model->run(batch).logits.equal(before));
}

std::int64_t requested_at_peak(sim::Mode mode, const std::string& type) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = mode});
  (void)on_card(type, box.device(0), nullptr);
  return box.card(0).statistics().requested_bytes.all.peak;
}

TEST(QuantiseOnACard, AsksForTheSameBytesInBothModes) {
  for (const char* type : {"llama", "gpt2", "mixtral"})
    EXPECT_EQ(requested_at_peak(sim::Mode::shape_only, type),
              requested_at_peak(sim::Mode::compute, type))
        << type;
}

}  // namespace
}  // namespace headroom::nn
