// What the pricing of plans needs of a loss, and what is said where it cannot be.
#include <gmock/gmock.h>

#include "headroom/libtorch/on.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"

namespace headroom::train {
namespace {

using namespace literals;
using torch::Tensor;

struct MaskedImpl : torch::nn::Module {
  torch::nn::Linear layer{nullptr};
  Tensor mask;
  explicit MaskedImpl(bool registers) {
    layer = register_module("layer", torch::nn::Linear(1024, 1024));
    mask = torch::ones({4096, 1024}, layer->weight.device());  // 16 MiB
    if (registers) register_parameter("mask", mask, /*requires_grad=*/false);
  }
};
TORCH_MODULE(Masked);

struct MaskedTraining {
  sim::Simulation box = sim::simulate("1GiB");
  Masked net{nullptr};
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Step> step;
  std::vector<Event> events;

  explicit MaskedTraining(bool registers,
                          const std::function<Tensor(MaskedImpl&, const Tensor&)>& loss) {
    net = libtorch::on(box.device(0), [&] { return Masked(registers); });
    optimizer = optim::make_adamw(net->layer->parameters(), {.form = optim::OptimizerForm::fused});
    step = std::make_unique<Step>(
        *net, *optimizer,
        Objective{.loss = [this, loss](const Tensors& rows) { return loss(*net, rows[0]); }},
        StepOptions{.on_event = [this](const Event& event) { events.push_back(event); }});
  }
};

Tensor masked(MaskedImpl& net, const Tensor& rows) {
  return net.layer(rows * net.mask.narrow(0, 0, rows.size(0))).square().mean();
}

Tensors long_rows() {
  return {torch::ones({64, 1024})};
}

// A mask that was a member of the module and no buffer switched pricing off: "[sim] expected
// tensors of the simulation that lives now".
TEST(Pricing, CountsATensorThatTheLossHoldsAsIfTheModuleHadIt) {
  std::vector<Bytes> needed;
  for (const bool registers : {true, false}) {
    MaskedTraining training(registers, masked);
    training.step->prepare(long_rows());
    ASSERT_NE(training.step->prices(), nullptr) << training.step->why_unpriced();
    needed.push_back(training.step->prices()->needed({}, {.rows = 64})->largest());
  }
  EXPECT_GT(needed[1], 16_MiB);
  EXPECT_NEAR(static_cast<double>(needed[1].count), static_cast<double>(needed[0].count),
              static_cast<double>((2_MiB).count));
}

// Noise is drawn on the device that the program remembers.
TEST(Pricing, TakesItsOwnCardForTheOneThatTheLossNames) {
  const sim::Simulation* box = nullptr;
  MaskedTraining training(true, [&](MaskedImpl& net, const Tensor& rows) {
    const Tensor noise =
        torch::randn(rows.sizes(), torch::dtype(torch::kFloat).device(box->device(0)));
    return masked(net, rows + noise);
  });
  box = &training.box;
  training.step->prepare(long_rows());
  EXPECT_NE(training.step->prices(), nullptr) << training.step->why_unpriced();
}

// The second step of a GAN, prepared after the first had run, was told to "try predict before the
// first such pass", and nothing told a program that did not ask that its ladder worked blind.
TEST(Pricing, SaysOnceThatAStepRunsWithoutPricesAndWhatToCall) {
  MaskedTraining training(true, masked);
  static_cast<void>(training.step->run(long_rows()));
  EXPECT_THAT(training.events, ::testing::IsEmpty());
  std::vector<Event> events;
  Step second(*training.net, *training.optimizer,
              {.loss = [&](const Tensors& rows) { return masked(*training.net, rows[0]); }},
              {.on_event = [&](const Event& event) { events.push_back(event); }});
  for (int i = 0; i < 2; ++i) static_cast<void>(second.run(long_rows()));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, Event::Kind::unpriced);
  EXPECT_THAT(to_string(events[0]),
              ::testing::AllOf(::testing::StartsWith("step 1: the memory of plans is not known: "),
                               ::testing::HasSubstr("Step::prepare() of every training step")));
}

TEST(Pricing, SaysWhatFailedInTheDryRun) {
  MaskedTraining training(true, [](MaskedImpl& net, const Tensor& rows) {
    TORCH_CHECK(net.mask.storage().data() != nullptr, "no values to look at");
    return masked(net, rows);
  });
  training.step->prepare(long_rows());
  EXPECT_THAT(training.step->why_unpriced(),
              ::testing::AllOf(::testing::HasSubstr("fails in a dry run"),
                               ::testing::HasSubstr("no values to look at")));
}

}  // namespace
}  // namespace headroom::train
