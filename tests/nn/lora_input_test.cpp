// Float32 adapters on half-precision layers, which keep their input once or a copy each.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>

#include "headroom/dryrun/dry_run.h"
#include "headroom/libtorch/on.h"
#include "headroom/model/model_catalogue.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/layers.h"
#include "headroom/nn/lora.h"
#include "headroom/optim/optimizer.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"
#include "tests/nn/unpacked.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

// Of all adapters of a tiny model in bfloat16.
std::vector<Tensor> gradients(const std::string& type, bool once, Recompute how, double dropout) {
  const auto model = tiny_model(type, {.checkpointing = {.how = how}});
  to_type(model->module(), torch::kBFloat16);
  torch::manual_seed(4);
  const Lora lora = add_lora(
      model->module(),
      {.rank = 2, .dropout = dropout, .keeps_input_once = once, .targets = {"all-linear"}});
  for (auto [name, parameter] : lora.parameters()) parameter.detach().normal_(0, 0.1);
  if (how != Recompute::none) require_input_gradients(model->module());
  torch::manual_seed(5);
  const models::Batch batch = tiny_batch(*model);
  model->run(batch).loss.backward();
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : lora.parameters()) all.push_back(parameter.grad());
  return all;
}

TEST(LoraInput, KeptOnceGivesTheSameBits) {
  for (const char* type : {"llama", "gpt2", "bert"})
    for (const Recompute how : {Recompute::none, Recompute::nonreentrant, Recompute::reentrant})
      for (const double dropout : {0.0, 0.1}) {
        const std::vector<Tensor> one = gradients(type, true, how, dropout);
        const std::vector<Tensor> other = gradients(type, false, how, dropout);
        ASSERT_EQ(one.size(), other.size());
        for (std::size_t i = 0; i < one.size(); ++i)
          EXPECT_TRUE(one[i].defined() && one[i].equal(other[i])) << type << ", gradient " << i;
      }
}

// A layer of torch::nn's kind that scales its product.
TEST(LoraInput, KeptOnceKeepsTheScaleOfAProduct) {
  std::vector<Tensor> results;
  for (const bool once : {true, false}) {
    torch::manual_seed(1);
    auto net = libtorch::on(torch::kCPU, torch::kBFloat16,
                            [] { return torch::nn::Sequential(torch::nn::Linear(8, 6)); });
    const auto& layer = net->at<torch::nn::LinearImpl>(0);
    const Lora lora = add_lora(*net, {.rank = 2, .keeps_input_once = once, .targets = {"0"}});
    for (const auto& [name, parameter] : lora.parameters()) parameter.detach().fill_(0.5);
    const Tensor x = torch::randn({4, 8}).to(torch::kBFloat16);
    results.push_back(torch::addmm(layer.bias, x, layer.weight.t(), 1, 0.25));
  }
  EXPECT_TRUE(results[0].equal(results[1]));
}

TEST(LoraInput, IsOneTensorForLayersThatShareIt) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto allocated = [&] { return box.card(0).statistics().requested_bytes.all.current; };
  std::int64_t kept[2] = {};
  for (const bool once : {false, true}) {
    const auto net = libtorch::on(box.device(0), torch::kBFloat16, [] {
      auto made = std::make_shared<torch::nn::Module>();
      for (const char* name : {"q", "k", "v"})
        made->register_module(name, std::make_shared<Linear>(1024, 16, false));
      return made;
    });
    (void)add_lora(*net, {.rank = 4, .keeps_input_once = once, .targets = {"*"}});
    const Tensor x = libtorch::on(box.device(0), torch::kBFloat16, [] {
      return torch::randn({256, 1024});
    });
    const std::int64_t before = allocated();
    std::vector<Tensor> results;
    for (const auto& layer : net->children()) results.push_back(dynamic_cast<Linear&>(*layer)(x));
    kept[once ? 1 : 0] = allocated() - before;
  }
  EXPECT_EQ(kept[0] - kept[1], 3 * 4 * 256 * 1024) << "three float32 copies";
}

// The memory of a step, with the optimizer's state, of Llama 3.2 of 1B.
double peak_in_gib(at::ScalarType weights, bool float32, bool once) {
  const model::NamedModel named = model::model_named("llama-3.2-1b");
  const auto make = [&](c10::Device device) {
    const std::shared_ptr<models::Model> model = libtorch::on(
        device, weights, [&] { return models::build(named.config, {.fused_loss = true}); });
    const Lora lora = add_lora(
        model->module(),
        {.rank = 16, .float32 = float32, .keeps_input_once = once, .targets = {"all-linear"}});
    std::vector<Tensor> trained;
    for (const auto& [name, parameter] : lora.parameters()) trained.push_back(parameter);
    const std::shared_ptr<optim::Optimizer> optimizer =
        optim::make_adamw(trained, {.form = optim::OptimizerForm::fused});
    model->train();
    const models::Batch batch = models::empty_batch(*model, {.rows = 1, .length = 2048}, device);
    dryrun::Subject subject;
    subject.step = [model, optimizer, batch] {
      optimizer->zero_grad();
      model->run(batch).loss.backward();
      optimizer->step();
    };
    return subject;
  };
  return static_cast<double>(dryrun::dry_run("unlimited", make).peak.allocated.count) / (1 << 30);
}

// 7.37 GiB with copies; adapters in bfloat16 take 5.55.
TEST(LoraInput, KeptOnceClosesTheGapToAdaptersInBfloat16) {
  const double copies = peak_in_gib(torch::kBFloat16, true, false);
  const double once = peak_in_gib(torch::kBFloat16, true, true);
  const double in_bfloat16 = peak_in_gib(torch::kBFloat16, false, true);
  EXPECT_GE(copies, 7.3);
  EXPECT_LE(once, 5.7);
  EXPECT_LE(once, in_bfloat16 + 0.2);
}

}  // namespace
}  // namespace headroom::nn
