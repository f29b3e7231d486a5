// A weight that two stages of a split model use.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "headroom/base/error.h"
#include "headroom/sim/injection.h"
#include "staged_net.h"

namespace headroom::train::staged {
namespace {

// An embedding that is also the head, on the first and the last of three cards.
struct TiedNet {
  TiedNet(const sim::Simulation& box, const Shape& shape, const StepOptions& options,
          bool is_sparse = false) {
    torch::manual_seed(5);
    const Tensor values = torch::randn({kWords, kHidden}, torch::kDouble);
    const auto middle = layers(1, torch::kDouble);
    Team team{.stages = shape.stages, .pipeline = shape.pipeline};
    for (int replica = 0; replica < shape.replicas; ++replica)
      for (int stage = 0; stage < shape.stages; ++stage) {
        const c10::Device device = box.device(replica * shape.stages + stage);
        const auto module = std::make_shared<torch::nn::Module>();
        const bool is_first = stage == 0, is_last = stage + 1 == shape.stages;
        Layer layer(std::dynamic_pointer_cast<LayerImpl>(middle->at<LayerImpl>(1).clone()));
        module->register_module("layer", layer.ptr());
        layer->to(device);
        Tensors trained = module->parameters();
        Tensor table;
        if (is_first || is_last)
          table = module->register_parameter("table", values.to(device, false, true));
        if (is_first) trained.push_back(table);
        modules.push_back(module);
        optimizers.push_back(adamw(trained));
        if (is_last)
          team.ties.push_back({modules[modules.size() - static_cast<std::size_t>(shape.stages)]
                                   ->named_parameters()["table"],
                               table});
        team.ranks.push_back(
            {*module,
             *optimizers.back(),
             {.part = [=](const Tensors& rows, const Tensors& given) mutable {
               const Tensor x =
                   is_first ? torch::embedding(table, rows[0], -1, false, is_sparse) : given[0];
               const Tensor y = layer->forward(x);
               return Tensors{is_last ? loss_of(torch::matmul(y, table.t()), rows) : y};
             }}});
      }
    step.emplace(std::move(team), options);
  }
  static constexpr std::int64_t kWords = 23;
  static Tensors words(std::int64_t rows) {
    return {torch::randint(kWords, {rows}), torch::randint(kWords, {rows})};
  }
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  std::optional<Step> step;
};

TEST(Stages, ATiedWeightIsTrainedOnceAndItsCopyFollows) {
  const Shape shape{2, 3};
  const sim::Simulation box = cards(shape.ranks());
  StepOptions options = plain(3);
  options.max_grad_norm = 0.5;
  TiedNet net(box, shape, options);
  // The whole, on the CPU.
  Tensor table = net.modules[0]->named_parameters()["table"].detach().cpu().clone();
  table.requires_grad_();
  std::vector<Layer> middle;
  Tensors trained{table};
  for (int stage = 0; stage < shape.stages; ++stage) {
    middle.emplace_back();
    middle.back()->to(torch::kDouble);
    const torch::NoGradGuard no_grad;
    const auto theirs = net.modules[static_cast<std::size_t>(stage)]->named_parameters();
    for (const auto& one : middle.back()->named_parameters()) {
      Tensor(one.value()).copy_(theirs["layer." + one.key()].cpu());
      trained.push_back(one.value());
    }
  }
  const auto optimizer = adamw(trained);
  for (int i = 0; i < 20; ++i) {
    const Tensors batch = TiedNet::words(17);
    Tensor x = torch::embedding(table, batch[0]);
    for (Layer& layer : middle) x = layer->forward(x);
    const Tensor loss = loss_of(torch::matmul(x, table.t()), batch);
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(trained, options.max_grad_norm);
    optimizer->step();
    optimizer->zero_grad();
    const Committed done = net.step->run(batch);
    EXPECT_NEAR(done.loss(), loss.item<double>(), 1e-11);
    EXPECT_NEAR(done.gradient_norm(), norm, 1e-10);
    const Tensor first = net.modules[0]->named_parameters()["table"];
    for (std::size_t rank = 0; rank < net.modules.size(); ++rank) {
      const auto named = net.modules[rank]->named_parameters();
      if (const Tensor* const one = named.find("table")) {
        EXPECT_TRUE(one->cpu().equal(first.cpu())) << rank;
        EXPECT_TRUE(torch::allclose(one->cpu(), table, 1e-8, 1e-10)) << rank;
        EXPECT_FALSE(one->grad().defined());
      }
    }
  }
}

TEST(Stages, ARefusalBesideATieLosesNoStep) {
  const Shape shape{1, 3};
  const sim::Simulation box = cards(shape.ranks());
  TiedNet clean(box, shape, plain(3)), run(box, shape, plain(3));
  for (int card = 0; card < shape.ranks(); ++card)
    for (std::uint64_t request = 1;; ++request) {
      const Tensors batch = TiedNet::words(7);
      const double expected = clean.step->run(batch).loss();
      Committed done;
      {
        const sim::InjectionScope scope(box.card(card), sim::once(request));
        done = run.step->run(batch);
      }
      ASSERT_EQ(done.loss(), expected) << "card " << card << ", request " << request;
      for (std::size_t rank = 0; rank < run.modules.size(); ++rank) {
        const auto ours = run.modules[rank]->parameters(),
                   right = clean.modules[rank]->parameters();
        for (std::size_t i = 0; i < ours.size(); ++i) {
          ASSERT_TRUE(ours[i].cpu().equal(right[i].cpu()));
          ASSERT_FALSE(ours[i].grad().defined());
        }
      }
      if (done.attempts == 1) break;
    }
}

// Its gradient comes in other pieces than the copy's, which the other stage must not wait for.
TEST(Stages, ATiedWeightWithASparseGradientIsRefusedOnAllStages) {
  const Shape shape{1, 3};
  const sim::Simulation box = cards(shape.ranks());
  TiedNet net(box, shape, plain(3), /*is_sparse=*/true);
  EXPECT_THROW(static_cast<void>(net.step->run(TiedNet::words(7))), std::exception);
  EXPECT_EQ(net.step->steps(), 0);
}

}  // namespace
}  // namespace headroom::train::staged
