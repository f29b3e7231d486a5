// Gradients are the same to the bit however what is saved is kept: as it is, offloaded to memory or
// to a file, and recomputed and offloaded. With dropout, on the CPU and on a simulated card.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "headroom/libtorch/modules.h"
#include "headroom/models/batch.h"
#include "headroom/models/initialise.h"
#include "headroom/models/model.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/offload.h"
#include "headroom/sim/simulate.h"
#include "tests/nn/tiny_models.h"
#include "tests/support/temporary_folder.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

struct Trained {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensor(Recompute)> loss;
};

Trained transformer(c10::Device device) {
  torch::nn::Transformer net(torch::nn::TransformerOptions(32, 4)
                                 .num_encoder_layers(2)
                                 .num_decoder_layers(2)
                                 .dim_feedforward(64)
                                 .dropout(0.1));
  libtorch::move(*net, device);
  const Tensors in{torch::randn({6, 3, 32}).to(device).requires_grad_(),
                   torch::randn({5, 3, 32}).to(device).requires_grad_()};
  const auto whole = [net](const Tensors& x) mutable { return Tensors{net(x[0], x[1])}; };
  return {net.ptr(), [=](Recompute how) { return checkpointed(how, whole, in)[0].pow(2).mean(); }};
}

Trained published(const model::ModelConfig& config, c10::Device device) {
  const auto net = models::build(config);
  models::initialise(*net);
  libtorch::move(net->module(), device);
  net->train();
  const auto batch = models::random_batch(*net, {.rows = 2, .length = 16, .image = 32}, device);
  const std::shared_ptr<torch::nn::Module> module(net, &net->module());
  return {module, [=](Recompute how) {
            net->set_checkpointing({.how = how});
            return net->run(batch).loss;
          }};
}

Trained gpt2(c10::Device device) {
  const Json keys = {{"model_type", "gpt2"}, {"n_embd", 32},      {"n_head", 4},
                     {"n_layer", 2},         {"n_positions", 32}, {"vocab_size", 128}};
  return published(model::ModelConfig(keys, "a small gpt2 with dropout"), device);
}

Trained resnet(c10::Device device) {
  return published(tiny_config("resnet"), device);
}

// Recurrent, with a skip, an in-place operator and a loop of its own.
struct OwnImpl : torch::nn::Module {
  OwnImpl()
      : cell(register_module("cell", torch::nn::GRUCell(16, 16))),
        mix(register_module("mix", torch::nn::Bilinear(16, 16, 16))) {}
  Tensor forward(const Tensor& x) {
    Tensor state = torch::zeros_like(x);
    for (int i = 0; i < 3; ++i) {
      state = cell(torch::dropout(mix(x, state), 0.3, true), state) + x;
      state.relu_();
    }
    return state;
  }
  torch::nn::GRUCell cell;
  torch::nn::Bilinear mix;
};
TORCH_MODULE(Own);

struct TwiceImpl : torch::nn::Module {
  TwiceImpl() : first(register_module("first", Own())), second(register_module("second", Own())) {}
  Tensor forward(const Tensor& x, Recompute how) {
    const auto part = [](Own net) { return [net](const Tensor& in) mutable { return net(in); }; };
    return checkpointed(how, part(second), checkpointed(how, part(first), x)).pow(2).mean();
  }
  Own first, second;
};
TORCH_MODULE(Twice);

Trained own(c10::Device device) {
  Twice net;
  libtorch::move(*net, device);
  const Tensor in = torch::randn({4, 16}).to(device).requires_grad_();
  return {net.ptr(), [=](Recompute how) mutable { return net(in, how); }};
}

struct Case {
  const char* name;
  Trained (*build)(c10::Device);
  bool checkpoints;
};

std::vector<Tensor> gradients(const Trained& trained, c10::Device device, Recompute how,
                              Offload* offload) {
  torch::manual_seed(7);
  if (!device.is_cpu()) at::Generator(sim::card_of(device)->generator()).set_current_seed(7);
  const auto offloaded = [&] {
    const auto scope = offload->scope();
    return trained.loss(how);
  };
  (offload == nullptr ? trained.loss(how) : offloaded()).backward();
  std::vector<Tensor> all;
  for (Tensor parameter : trained.module->parameters()) {
    all.push_back(parameter.grad().cpu());
    parameter.mutable_grad().reset();
  }
  return all;
}

class SavedActivations : public ::testing::TestWithParam<std::tuple<Case, bool>> {};

TEST_P(SavedActivations, GiveTheSameGradientsHoweverTheyAreKept) {
  const auto& [with, on_card] = GetParam();
  std::optional<sim::Simulation> box;
  if (on_card) box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute, .check_streams = true});
  const c10::Device device = on_card ? box->device(0) : c10::Device(at::kCPU);
  torch::manual_seed(1);
  const Trained trained = with.build(device);
  const testing::TemporaryFolder folder;
  const auto plain = gradients(trained, device, Recompute::none, nullptr);
  for (const auto& directory : {std::filesystem::path(), folder.path()})
    for (const Recompute how : {Recompute::none, Recompute::nonreentrant, Recompute::reentrant}) {
      if (how != Recompute::none && !with.checkpoints) continue;
      Offload offload(trained.module->parameters(), {.smallest = Bytes{1}, .directory = directory});
      const auto kept = gradients(trained, device, how, &offload);
      ASSERT_EQ(kept.size(), plain.size());
      for (std::size_t i = 0; i < kept.size(); ++i)
        EXPECT_TRUE(kept[i].equal(plain[i])) << "parameter " << i;
      EXPECT_EQ(offload.use().moved > 0, on_card);
      EXPECT_EQ(offload.use().waiting.count, 0);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Models, SavedActivations,
    ::testing::Combine(::testing::Values(Case{"transformer", transformer, true},
                                         Case{"gpt2", gpt2, true}, Case{"resnet", resnet, false},
                                         Case{"own_module", own, true}),
                       ::testing::Bool()),
    [](const auto& with) {
      return std::string(std::get<0>(with.param).name) +
             (std::get<1>(with.param) ? "_on_sim" : "_on_cpu");
    });

}  // namespace
}  // namespace headroom::nn
