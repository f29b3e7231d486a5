// What a loss changes besides the module of its step is as before after a failure.
#include "headroom/train/detail/writes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <stdexcept>
#include <utility>

#include "headroom/base/error.h"
#include "headroom/libtorch/on.h"
#include "headroom/libtorch/random_state.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "headroom/train/step.h"

namespace headroom::train {
namespace {

using torch::Tensor;
using LossOfNet = std::function<Tensor(torch::nn::Linear& net, Tensor rows)>;

// A linear layer on a card, and a step over it.
struct OneLayer {
  sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  c10::Device device = box.device(0);
  torch::nn::Linear net{nullptr};
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<Step> step;

  explicit OneLayer(const LossOfNet& loss) {
    torch::manual_seed(1);
    net = libtorch::on(device, [] { return torch::nn::Linear(4, 3); });
    optimizer = optim::make_adamw(net->parameters(), {.form = optim::OptimizerForm::fused});
    step = std::make_unique<Step>(
        *net, *optimizer,
        Objective{.loss = [this, loss](const Tensors& rows) { return loss(net, rows[0]); }},
        StepOptions{.prices = false, .adapts = false});
  }

  // Three steps. In the last one, memory runs out in the backward pass if it is `refused`.
  Committed run(bool refused, const std::function<Tensors()>& batch) const {
    static_cast<void>(step->run(batch()));
    const std::uint64_t before = box.card(0).requests();
    static_cast<void>(step->run(batch()));
    const std::uint64_t last = box.card(0).requests() - before - 1;
    const sim::InjectionScope scope(box.card(0), refused ? sim::once(last) : sim::any_of({}));
    const Committed done = step->run(batch());
    EXPECT_EQ(done.attempts, refused ? 2 : 1);
    return done;
  }
};

Tensors eight_rows() {
  torch::manual_seed(2);
  return {torch::randn({8, 4})};
}

// A GAN's discriminator is trained over a generator in training mode. After an out-of-memory the
// generator's batch norm had counted the batch twice, although the step promised to put everything
// back.
TEST(PutBack, ABatchNormOfAnotherNetwork) {
  torch::nn::BatchNorm1d other(4);
  OneLayer training([&](auto& net, const Tensor& x) { return net(other(x).detach()).mean(); });
  other->to(training.device);
  static_cast<void>(training.run(true, eight_rows));
  EXPECT_EQ(other->num_batches_tracked.item<std::int64_t>(), 3);
}

// The same after a failure that was thrown: "the step has not begun".
TEST(PutBack, ABatchNormOfAnotherNetworkWhenTheStepThrows) {
  torch::nn::BatchNorm1d other(4);
  OneLayer training([&](auto& net, const Tensor& x) -> Tensor {
    static_cast<void>(net(other(x)));
    throw std::runtime_error("the program's own");
  });
  other->to(training.device);
  EXPECT_THROW(static_cast<void>(training.step->run(eight_rows())), std::runtime_error);
  EXPECT_EQ(other->num_batches_tracked.item<std::int64_t>(), 0);
  EXPECT_TRUE(torch::equal(other->running_mean.cpu(), torch::zeros(4)));
}

// In parts, a batch norm that the step knows counts the batch once; one that it does not know
// counts parts, as it does without a step.
TEST(PutBack, OnlyBatchNormOfModulesThatAreNamedIsPooled) {
  torch::nn::BatchNorm1d named(4), other(4);
  OneLayer training([](auto& net, const Tensor& x) { return net(x).mean(); });
  named->to(training.device);
  other->to(training.device);
  Step step(*training.net, *training.optimizer,
            {.loss =
                 [&](const Tensors& rows) {
                   return training.net(named(rows[0]) + other(rows[0]).detach()).mean();
                 },
             .also = {named.get()}},
            {.plan = {.micro_batch = 2}, .prices = false});
  static_cast<void>(step.run(eight_rows()));
  EXPECT_EQ(named->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_EQ(other->num_batches_tracked.item<std::int64_t>(), 4);
  EXPECT_TRUE(
      torch::allclose(named->running_mean.cpu(), 0.1 * eight_rows()[0].mean(0), 1e-5, 1e-6));
}

// Rows on the card that the loss divides in place were divided again after a failure, and the step
// was committed with another loss.
TEST(PutBack, RowsThatTheLossChanges) {
  const auto loss = [](bool refused) {
    OneLayer training([](auto& net, Tensor x) { return net(x.div_(255)).square().mean(); });
    return training.run(refused, [&] { return Tensors{eight_rows()[0].to(training.device)}; })
        .loss();
  };
  EXPECT_EQ(loss(true), loss(false));
}

// A sum of losses on the card, for a log, counted a step twice: one that goes on, and one that the
// program makes anew between two steps, as at the start of an epoch.
TEST(PutBack, ASumOfLosses) {
  const auto sum_of = [](bool refused, bool anew) {
    Tensor sum;
    OneLayer training([&](auto& net, const Tensor& x) {
      const Tensor loss = net(x).square().mean();
      sum.add_(loss.detach());
      return loss;
    });
    const auto zero = [&] { return torch::zeros({}, training.device); };
    sum = zero();
    static_cast<void>(training.run(refused, [&] {
      if (anew) sum = zero();
      return eight_rows();
    }));
    return sum.item<double>();
  };
  EXPECT_EQ(sum_of(true, false), sum_of(false, false));
  EXPECT_EQ(sum_of(true, true), sum_of(false, true));
}

// Weight clipping, as in a Wasserstein GAN, over parameters that are changed in place.
TEST(PutBack, ParametersThatTheLossChanges) {
  const auto weight = [](bool refused) {
    OneLayer training([](auto& net, const Tensor& x) {
      {
        const torch::NoGradGuard no_grad;
        net->weight.mul_(0.9);
      }
      return net(x).square().mean();
    });
    static_cast<void>(training.run(refused, eight_rows));
    return training.net->weight.detach().cpu();
  };
  EXPECT_TRUE(torch::equal(weight(true), weight(false)));
}

// What another network's parameters get in the backward pass of an attempt that failed is gone.
TEST(PutBack, GradientsOfAnotherNetwork) {
  const auto gradient = [](bool refused) {
    torch::manual_seed(3);
    torch::nn::Linear other(4, 4);
    OneLayer training([&](auto& net, const Tensor& x) { return net(other(x)).square().mean(); });
    other->to(training.device);
    static_cast<void>(training.run(refused, eight_rows));  // of three steps: they add up
    return other->weight.grad().cpu();
  };
  EXPECT_TRUE(torch::equal(gradient(true), gradient(false)));
}

// Noise from a generator of one's own was other noise in the second attempt.
TEST(PutBack, NumbersOfAGeneratorOfItsOwn) {
  const auto loss = [](bool refused) {
    const at::Generator own = at::detail::createCPUGenerator(7);
    OneLayer training([&](auto& net, const Tensor& x) {
      return net(x).square().mean() * torch::rand({1}, own).to(x.device()).sum();
    });
    return training.run(refused, eight_rows).loss();
  };
  EXPECT_EQ(loss(true), loss(false));
}

void fail_first_time(bool& has_failed) {
  TORCH_CHECK_WITH(OutOfMemoryError, std::exchange(has_failed, true), "none left");
}

// A tensor of the first attempt, and no copy of it from before: what it held cannot be known.
TEST(PutBack, RefusesASumThatAFailedAttemptMade) {
  Tensor sum;
  bool has_failed = false;
  OneLayer training([&](auto& net, const Tensor& x) {
    const Tensor loss = net(x).square().mean();
    if (!sum.defined()) sum = torch::zeros({}, x.device());
    sum.add_(loss.detach());
    fail_first_time(has_failed);
    return loss;
  });
  try {
    static_cast<void>(training.step->run(eight_rows()));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("float tensor of [] on sim:0, which aten::add_"));
  }
}

TEST(PutBack, LeavesACacheThatAFailedAttemptMade) {
  Tensor mask;
  bool has_failed = false;
  OneLayer training([&](auto& net, const Tensor& x) {
    if (!mask.defined()) mask = torch::zeros_like(x).fill_(1);
    fail_first_time(has_failed);
    return net(x * mask).square().mean();
  });
  EXPECT_EQ(training.step->run(eight_rows()).attempts, 2);
}

// ---- Writes alone

// Activations that are changed in place, also where nothing is remembered for a backward pass.
TEST(Writes, CopyNothingThatIsMadeMeanwhile) {
  const sim::Simulation box = sim::simulate("1GiB", {.mode = sim::Mode::compute});
  const Tensor x = torch::randn({256, 128}).to(box.device(0)).requires_grad_(true);  // no sum
  const auto work = [&] {
    Tensor y = (x * 2).relu_();
    y.sum().backward();
    const torch::NoGradGuard no_grad;
    const Tensor z = torch::zeros_like(x).add_(1);
    (z + x).relu_().mul_(2);
    x.mutable_grad().reset();
  };
  const auto requests = [&](const auto& of) {
    const std::uint64_t before = box.card(0).requests();
    of();
    return box.card(0).requests() - before;
  };
  work();
  const std::uint64_t plain = requests(work);
  detail::Writes writes;
  libtorch::RandomState random({});
  for (int attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(requests([&] {
                writes.begin({}, random);
                {
                  const detail::Writes::Watch watch(writes);
                  work();
                }
                writes.commit();
              }),
              plain)
        << attempt;
  }
}

// In another order than they were written, the first values would be lost.
TEST(Writes, PutBackPiecesThatOverlap) {
  const Tensor all = torch::arange(6, torch::kFloat);
  const Tensor before = all.clone();
  detail::Writes writes;
  libtorch::RandomState random({});
  writes.begin({}, random);
  {
    const detail::Writes::Watch watch(writes);
    all.narrow(0, 0, 4).mul_(2);
    all.narrow(0, 2, 4).add_(1);
    all.fill_(9);
  }
  writes.undo();
  EXPECT_TRUE(torch::equal(all, before));
}

}  // namespace
}  // namespace headroom::train
