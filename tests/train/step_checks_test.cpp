// What a step knows to be wrong it refuses before it changes anything.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"
#include "nets.h"

namespace headroom::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;
using Loss = std::function<Tensor(const Tensors&)>;

constexpr auto kFused = optim::OptimizerForm::fused;

struct Small {
  explicit Small(c10::Device device = at::kCPU) {
    torch::manual_seed(1);
    net->to(device);
    optimizer = optim::make_adamw(net->parameters(), {.form = kFused});
  }
  Loss loss = [this](const Tensors& rows) { return net->forward(rows[0]).square().mean(); };
  Committed step_with(const Loss& other, const StepOptions& options = {}) {
    return Step(*net, *optimizer, {.loss = other}, options).run({torch::ones({8, 3})});
  }

  torch::nn::Linear net{3, 2};
  std::unique_ptr<optim::Optimizer> optimizer;
};

auto refuses(const char* expected, const char* received) {
  return ThrowsMessage<UsageError>(AllOf(HasSubstr(expected), HasSubstr(received)));
}

// A listener's log of a run once had the last step's loss in every line.
TEST(StepResults, KeepTheirOwnNumbers) {
  Small small;
  Step step(*small.net, *small.optimizer, {.loss = small.loss}, {.max_grad_norm = 1});
  std::vector<Committed> kept;
  std::vector<double> losses, norms;
  for (int i = 0; i < 3; ++i) {
    kept.push_back(step.run({torch::ones({8, 3})}));
    losses.push_back(kept.back().loss());
    norms.push_back(kept.back().gradient_norm());
  }
  EXPECT_GT(losses[0], losses[1]);
  EXPECT_GT(losses[1], losses[2]);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(kept[i].loss(), losses[i]);
    EXPECT_EQ(kept[i].gradient_norm(), norms[i]);
  }
}

TEST(StepResults, TakeNoMemoryIfTheyAreNotKept) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  Small small(box.device(0));
  Step step(*small.net, *small.optimizer, {.loss = small.loss}, {.prices = false});
  const auto requests = [&] {
    const std::uint64_t before = box.card(0).requests();
    static_cast<void>(step.run({torch::ones({8, 3})}));
    return box.card(0).requests() - before;
  };
  static_cast<void>(requests());
  const std::uint64_t usual = requests();
  const Committed kept = step.run({torch::ones({8, 3})});
  EXPECT_EQ(requests(), usual + 1);  // the loss of the kept one stays
  EXPECT_EQ(requests(), usual);
}

// Once a model that knew no checkpointing ran without it, and the result said "checkpointing".
TEST(StepChecks, RefuseAPlanThatTheObjectiveCannotFollow) {
  Small small;
  const auto with = [&](const Plan& plan) {
    static_cast<void>(Step(*small.net, *small.optimizer, {.loss = small.loss}, {.plan = plan}));
  };
  EXPECT_THAT([&] { with({.techniques = {"checkpointing"}}); },
              refuses("can follow", "checkpointing"));
  EXPECT_THAT([&] { with({.techniques = {"fused_loss"}}); }, refuses("can follow", "fused_loss"));
  EXPECT_THAT([&] { with({.micro_batch = -3}); }, refuses("micro-batch of 0 or more", "-3"));
  EXPECT_THAT([&] { with({.device = "cuda:77"}); }, refuses("a device of this process", "cuda:77"));
  EXPECT_THAT([&] { with({.device = "a card"}); }, refuses("a device of this process", "a card"));
  Step step(*small.net, *small.optimizer, {.loss = small.loss});
  EXPECT_THROW(step.set_plan({.techniques = {"checkpointing"}}), UsageError);
  EXPECT_THROW(step.set_plan({.micro_batch = -1}), UsageError);
  step.set_plan({.micro_batch = 3, .techniques = {"offload"}, .device = "cpu"});
  EXPECT_EQ(step.run({torch::ones({8, 3})}).plan.micro_batch, 3);
}

// Frozen weights that are stored in fewer bits stay so.
TEST(StepPlans, KeepWhatLasts) {
  Small small;
  Objective objective{.loss = small.loss, .follow = [](const Plan&) {}};
  objective.techniques = {"checkpointing", "quantize_4bit"};
  Step step(*small.net, *small.optimizer, objective, {.plan = {.techniques = {"quantize_4bit"}}});
  step.set_plan({.techniques = {"checkpointing"}});
  EXPECT_EQ(step.plan().techniques, (std::set<std::string>{"checkpointing", "quantize_4bit"}));
  step.run({torch::ones({8, 3})});
  step.set_plan({});
  EXPECT_EQ(step.plan().techniques, (std::set<std::string>{"quantize_4bit"}));
}

TEST(StepChecks, RefuseOptionsThatMakeNoSense) {
  Small small;
  const auto with = [&](const StepOptions& options) {
    static_cast<void>(Step(*small.net, *small.optimizer, {.loss = small.loss}, options));
  };
  EXPECT_THAT([&] { with({.autocast = at::kLong}); }, refuses("BFloat16 or Half", "Long"));
  EXPECT_THAT([&] { with({.max_grad_norm = -1}); }, refuses("norm of 0 or more", "-1"));
  EXPECT_THAT([&] { with({.grow_after = 0}); }, refuses("1 or more steps", "received '0'"));
}

// Once the steps of a GAN with its two optimizers swapped committed one after another, and trained
// nothing.
TEST(StepChecks, RefuseAnOptimizerOfAnotherModule) {
  Small small, other;
  const auto with = [&](optim::Optimizer& optimizer) {
    static_cast<void>(Step(*small.net, optimizer, {.loss = small.loss}));
  };
  EXPECT_THAT([&] { with(*other.optimizer); },
              refuses("an optimizer of the module", "one of another module"));
  const Tensor frozen = torch::zeros({3});
  EXPECT_THAT([&] { with(*optim::make_adamw({frozen})); },
              refuses("a parameter to train", "frozen"));
  EXPECT_THROW((void)optim::make_adamw(std::vector<Tensor>{}), UsageError);
}

// A tensor outside of the module may train beside it.
TEST(StepChecks, TakeATensorOutsideOfTheModule) {
  Small small;
  Tensor scale = torch::ones({}).requires_grad_();
  std::vector<Tensor> all = small.net->parameters();
  all.push_back(scale);
  const auto optimizer = optim::make_sgd(all, {.learning_rate = 0.1, .form = kFused});
  Step step(*small.net, *optimizer,
            {.loss = [&](const Tensors& rows) { return scale * small.loss(rows); }});
  static_cast<void>(step.run({torch::ones({8, 3})}));
  EXPECT_LT(scale.item<float>(), 1);
}

// Once the message of addmm or add_, deep in LibTorch.
TEST(StepChecks, RefuseAModelOnTwoDevicesOrOneThatHasMoved) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  Small small;
  Step step(*small.net, *small.optimizer, {.loss = small.loss});
  static_cast<void>(step.run({torch::ones({8, 3})}));
  small.net->to(box.device(1));
  EXPECT_THAT(
      [&] {
        static_cast<void>(step.run({torch::ones({8, 3})}));
      },
      refuses("on cpu, where the step was made", "sim:1"));
  EXPECT_EQ(step.steps(), 1);
  torch::nn::Sequential two(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
  two[0]->to(box.device(0));
  two[1]->to(box.device(1));
  const auto optimizer = optim::make_adamw(two->parameters());
  EXPECT_THAT([&] { static_cast<void>(Step(*two, *optimizer, {.loss = small.loss})); },
              refuses("on sim:0, where the step was made", "sim:1"));
}

// Once "output with shape [] doesn't match the broadcast shape [8]", "expected a proper Tensor" and
// "element 0 of tensors does not require grad".
TEST(StepChecks, NameWhatIsWrongWithALoss) {
  Small small;
  const auto with = [&](const Loss& loss) {
    return [&small, loss] { static_cast<void>(small.step_with(loss)); };
  };
  const auto right = small.loss;
  EXPECT_THAT(with([&](const Tensors& rows) { return small.net->forward(rows[0]).sum(1); }),
              refuses("a loss of one number", "a tensor of [8]'; try loss.mean()"));
  EXPECT_THAT(with([](const Tensors&) { return Tensor(); }),
              refuses("a loss of one number", "an undefined tensor"));
  EXPECT_THAT(with([&](const Tensors& rows) { return right(rows).detach(); }),
              refuses("with a graph", "not detached"));
  const torch::NoGradGuard around_run;
  EXPECT_THAT(with(right), refuses("with a graph", "outside of NoGradGuard"));
}

// Once a loss of NaN was committed: all weights became NaN, without an event.
TEST(StepChecks, RefuseALossOrGradientsThatAreNotFinite) {
  Small small;
  const Tensor before = small.net->weight.detach().clone();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto not_finite = [&](const char* what, const Loss& loss, const StepOptions& options) {
    EXPECT_THAT([&] { static_cast<void>(small.step_with(loss, options)); },
                ThrowsMessage<InputError>(HasSubstr(what)));
    EXPECT_TRUE(small.net->weight.equal(before));
    EXPECT_FALSE(small.net->weight.grad().defined());
  };
  const Loss no_number = [&](const Tensors& rows) { return small.loss(rows) * nan; };
  const Loss steep = [&](const Tensors& rows) {  // its value is 0, its slope is not finite
    return (small.loss(rows) * 0).sqrt();
  };
  for (const double clipped : {0.0, 1.0}) {
    const StepOptions options{.max_grad_norm = clipped, .refuse_non_finite = true};
    not_finite("a finite loss, received 'nan'", no_number, options);
    not_finite("a finite norm of the gradients", steep, options);
    EXPECT_GT(small.step_with(small.loss, options).gradient_norm(), 0);
    const torch::NoGradGuard no_grad;
    small.net->weight.copy_(before);
  }
  static_cast<void>(small.step_with(no_number));
  EXPECT_TRUE(small.net->weight.isnan().all().item<bool>());
}

TEST(StepChecks, LeaveGradientsToALossScaler) {
  Small small;
  const StepOptions options{.refuse_non_finite = true,
                            .scaling = optim::LossScalerOptions{.first = 1e38}};
  const Tensor before = small.net->weight.detach().clone();
  const Committed done = small.step_with(
      [&](const Tensors& rows) { return small.loss(rows) * 1e3; }, options);  // skipped
  EXPECT_EQ(done.step, 1);
  EXPECT_TRUE(small.net->weight.equal(before));
}

}  // namespace
}  // namespace headroom::train
