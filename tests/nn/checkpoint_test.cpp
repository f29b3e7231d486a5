#include "headroom/nn/checkpoint.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <string>

#include "headroom/base/error.h"
#include "headroom/libtorch/autocast.h"
#include "headroom/libtorch/saved_tensors.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

constexpr Recompute kAll[] = {Recompute::none, Recompute::nonreentrant, Recompute::reentrant};

// Three layers with dropout, each checkpointed.
struct Net {
  explicit Net(torch::Device device) {
    torch::manual_seed(1);
    for (Tensor& weight : weights) weight = torch::randn({16, 16}).to(device).requires_grad_();
  }
  Tensor loss(const Tensor& x, Recompute how) const {
    Tensor states = x;
    for (const Tensor& weight : weights)
      states = checkpointed(
          how,
          [weight](const Tensor& in) {
            return torch::dropout(torch::tanh(torch::mm(in, weight)), 0.5, true);
          },
          states);
    return states.pow(2).sum();
  }
  std::array<Tensor, 3> weights;
};

struct Result {
  std::vector<Tensor> gradients;
  Tensor next_random;  // what is drawn after the pass
};

Result result_of(torch::Device device, Recompute how) {
  const Net net(device);
  Tensor x = torch::randn({8, 16}).to(device).requires_grad_();
  torch::manual_seed(7);
  if (device.type() == torch::kPrivateUse1) {
    at::Generator of_card = at::globalContext().defaultGenerator(device);
    of_card.set_current_seed(7);
  }
  net.loss(x, how).backward();
  Result result{{x.grad().cpu()}, torch::rand({4}, device).cpu()};
  for (const Tensor& weight : net.weights) result.gradients.push_back(weight.grad().cpu());
  return result;
}

void expect_equal(const Result& one, const Result& other, const std::string& where) {
  for (std::size_t i = 0; i < one.gradients.size(); ++i)
    EXPECT_TRUE(one.gradients[i].equal(other.gradients[i])) << where << ", gradient " << i;
  EXPECT_TRUE(one.next_random.equal(other.next_random)) << where;
}

TEST(Checkpointed, GivesTheSameGradientsAndLeavesTheSameRandomNumbers) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const torch::Device device : {torch::Device(torch::kCPU), box.device(0)}) {
    const Result plain = result_of(device, Recompute::none);
    expect_equal(result_of(device, Recompute::nonreentrant), plain, device.str() + " nonreentrant");
    expect_equal(result_of(device, Recompute::reentrant), plain, device.str() + " reentrant");
  }
}

TEST(Checkpointed, KeepsOnlyTheInputs) {
  const sim::Simulation box = sim::simulate("1x4GiB");
  const auto current = [&] { return box.card(0).statistics().allocated_bytes.all.current; };
  // 4 MiB of states; the part keeps three more of them.
  const auto part = [](const Tensor& in) { return in.exp().exp().exp(); };
  std::map<Recompute, std::int64_t> kept;
  for (const Recompute how : kAll) {
    Tensor x = torch::empty({1 << 20}, box.device(0)).requires_grad_();
    Tensor states = x;
    for (int layer = 0; layer < 4; ++layer) states = checkpointed(how, part, states);
    kept[how] = current();
    states.sum().backward();
  }
  EXPECT_EQ(kept[Recompute::none], (1 + 4 * 3) * (4 << 20));
  EXPECT_EQ(kept[Recompute::nonreentrant], (1 + 4) * (4 << 20));
  EXPECT_EQ(kept[Recompute::reentrant], (1 + 4) * (4 << 20));
}

TEST(Checkpointed, GivesAllMemoryBack) {
  const sim::Simulation box = sim::simulate("1x4GiB");
  for (const Recompute how : kAll) {
    const Net net(box.device(0));
    const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
    {
      Tensor x = torch::empty({8, 16}, box.device(0)).requires_grad_();
      net.loss(x, how).backward();
      for (const Tensor& weight : net.weights) weight.mutable_grad().reset();
    }
    EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, before);
  }
}

TEST(Checkpointed, RunsAPartAsOftenAsItSays) {
  int runs = 0, whole_runs = 0;
  const auto part = [&](const Tensor& in) {
    ++runs;
    const Tensor inner = in.exp();
    const Tensor out = inner.exp();
    ++whole_runs;
    return out + 1;  // saves nothing
  };
  Tensor x = torch::ones({3}).requires_grad_();
  checkpointed(Recompute::nonreentrant, part, x).sum().backward();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(whole_runs, 1);  // the second time it stops at the last tensor that is needed
}

TEST(Checkpointed, CanRunBackwardTwice) {
  Tensor x = torch::ones({3}).requires_grad_();
  const auto part = [](const Tensor& in) { return in.exp().exp(); };
  const Tensor loss = checkpointed(Recompute::nonreentrant, part, x).sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  loss.backward();
  EXPECT_TRUE(x.grad().equal(once * 2));
}

// Two checkpointed parts inside a checkpointed one: only the outer input stays.
TEST(Checkpointed, NestedKeepsTheOuterInputAlone) {
  const sim::Simulation box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute});
  const auto inner = [](const Tensor& in) { return in.sin().exp().sin(); };
  const auto nested = [&](Recompute how) {
    return [inner, how](const Tensor& in) {
      return checkpointed(how, inner, checkpointed(how, inner, in));
    };
  };
  for (const torch::Device device : {torch::Device(torch::kCPU), box.device(0)}) {
    Tensor plain = torch::linspace(0, 1, 1 << 18).to(device).requires_grad_();
    nested(Recompute::none)(nested(Recompute::none)(plain)).sum().backward();
    for (const Recompute outer : {Recompute::nonreentrant, Recompute::reentrant})
      for (const Recompute within : {Recompute::nonreentrant, Recompute::reentrant}) {
        Tensor x = plain.detach().clone().requires_grad_();
        const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
        const Tensor middle = checkpointed(outer, nested(within), x);
        const Tensor loss = checkpointed(outer, nested(within), middle).sum();
        if (device != torch::kCPU) {
          EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current - before, (1 << 20) + 512);
        }
        loss.backward();
        EXPECT_TRUE(x.grad().equal(plain.grad()));
      }
  }
}

// What a checkpointed part keeps goes through the scope around it.
TEST(Checkpointed, KeepsItsInputsWhereTheScopeAroundItPutsThem) {
  const sim::Simulation box = sim::simulate("1x4GiB", {.mode = sim::Mode::compute});
  const libtorch::Pack away = [](const Tensor& tensor) -> libtorch::Unpack {
    return [host = tensor.to(torch::kCPU), device = tensor.device()] { return host.to(device); };
  };
  const auto part = [](const Tensor& in) { return in.sin().exp().sin(); };
  Tensor plain = torch::linspace(0, 1, 1 << 18).to(box.device(0)).requires_grad_();
  part(part(part(plain))).sum().backward();
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant}) {
    Tensor x = plain.detach().clone().requires_grad_(), loss;
    const std::int64_t before = box.card(0).statistics().allocated_bytes.all.current;
    {
      const libtorch::SavedTensorScope scope(away);
      loss = checkpointed(how, part, checkpointed(how, part, checkpointed(how, part, x))).sum();
    }
    EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current - before, 512) << "the loss";
    loss.backward();
    EXPECT_TRUE(x.grad().equal(plain.grad()));
  }
}

// Once the part silently ran again over other values.
TEST(Checkpointed, RefusesAnInputThatWasChangedSince) {
  Tensor x = torch::ones({3}).requires_grad_();
  Tensor input = x * 2;
  const Tensor loss = checkpointed(
                          Recompute::nonreentrant, [](const Tensor& in) { return in.exp(); }, input)
                          .sum();
  input.detach().add_(1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

// The reentrant form failed in T5's first layer, whose cross attention has no bias yet.
TEST(Checkpointed, TakesUndefinedTensorsAmongSeveral) {
  for (const Recompute how : kAll) {
    Tensor x = torch::ones({3}).requires_grad_(), y = torch::full({3}, 2.0).requires_grad_();
    const auto part = [](const Tensors& in) -> Tensors {
      EXPECT_FALSE(in[1].defined());
      return {in[0] * in[2], in[2].exp()};
    };
    const Tensors results = checkpointed(how, part, Tensors{x, Tensor(), y});
    (results[0] + results[1]).sum().backward();
    EXPECT_TRUE(x.grad().equal(y.detach()));
    EXPECT_TRUE(y.grad().allclose(1 + y.detach().exp()));
  }
}

// The nonreentrant form asked the first one for its device, whether it was there or not.
TEST(Checkpointed, TakesAnUndefinedTensorFirst) {
  for (const Recompute how : kAll) {
    Tensor x = torch::ones({3}).requires_grad_();
    const auto part = [](const Tensors& in) -> Tensors { return {in[1].exp()}; };
    checkpointed(how, part, Tensors{Tensor(), x})[0].sum().backward();
    EXPECT_TRUE(x.grad().equal(torch::ones({3}).exp()));
  }
  const auto none = [](const Tensors& in) { return in; };
  for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant})
    EXPECT_THROW((void)checkpointed(how, none, Tensors{Tensor()}), UsageError);
}

// As torch.utils.checkpoint's determinism_check: gradients of other tensors would be wrong.
TEST(Checkpointed, RefusesAPartThatSavesOtherTensorsTheSecondTime) {
  using Change = std::function<Tensor(const Tensor&)>;
  const Change fewer = [](const Tensor& in) { return in + 1; };
  const Change longer = [](const Tensor& in) { return torch::cat({in, in}).exp(); };
  const Change wider = [](const Tensor& in) { return in.to(torch::kDouble).exp(); };
  for (const Change& change : {fewer, longer, wider}) {
    int runs = 0;
    const auto part = [&](const Tensor& in) { return ++runs == 1 ? in.exp() : change(in); };
    Tensor x = torch::ones({3}).requires_grad_();
    const Tensor loss = checkpointed(Recompute::nonreentrant, part, x).sum();
    try {
      loss.backward();
      ADD_FAILURE() << "it was taken";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("saves the same tensors each time"));
    }
  }
}

TEST(Checkpointed, ReplaysAutocast) {
  for (const Recompute how : kAll) {
    std::vector<torch::ScalarType> types;
    const Tensor weight = torch::ones({4, 4});
    const auto part = [&](const Tensor& in) {
      const Tensor product = torch::mm(in, weight);
      types.push_back(product.scalar_type());
      return product * product;
    };
    Tensor x = torch::ones({4, 4}).requires_grad_();
    Tensor loss;
    {
      const libtorch::AutocastScope scope(torch::kCPU, torch::kBFloat16);
      loss = checkpointed(how, part, x).sum();
    }
    loss.backward();
    EXPECT_THAT(types, ::testing::Each(torch::kBFloat16));
  }
}

TEST(Checkpointed, RunsPlainlyWithoutAGraph) {
  const torch::NoGradGuard no_grad;
  for (const Recompute how : kAll) {
    int runs = 0;
    const auto part = [&](const Tensor& in) { return ++runs, in.exp(); };
    (void)checkpointed(how, part, torch::ones({3}));
    EXPECT_EQ(runs, 1);
  }
}

TEST(Checkpointed, ThrowsWhatThePartThrows) {
  for (const Recompute how : kAll) {
    int runs = 0;
    const auto part = [&](const Tensor& in) {
      if (++runs == 2) throw std::runtime_error("the second time");
      return in.exp();
    };
    Tensor x = torch::ones({3}).requires_grad_();
    const Tensor loss = checkpointed(how, part, x).sum();
    if (how == Recompute::none)
      EXPECT_NO_THROW(loss.backward());
    else
      EXPECT_THROW(loss.backward(), std::exception);
  }
}

// The part draws random numbers on a card that none of its inputs is on, under its autocast.
TEST(Checkpointed, ReplaysWhatAPartDrawsOnOtherDevices) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  const Tensor weight = torch::eye(64).to(box.device(1)).requires_grad_();
  const auto part = [&](const Tensor& in) {
    const Tensor moved = in.to(box.device(1));
    return torch::dropout(torch::mm(moved, weight), 0.5, true).pow(2).to(torch::kFloat);
  };
  for (const torch::Device from : {torch::Device(torch::kCPU), box.device(0)})
    for (const bool with_autocast : {false, true}) {
      const Tensor x = torch::randn({64, 64}).to(from);
      const auto gradient = [&](Recompute how) {
        at::Generator(box.card(1).generator()).set_current_seed(7);
        const Tensor in = x.detach().clone().requires_grad_();
        Tensor loss;
        {
          const libtorch::AutocastScope scope(box.device(1).type(), torch::kBFloat16,
                                              with_autocast);
          loss = checkpointed(how, part, in).sum();
        }
        loss.backward();
        return std::exchange(Tensor(weight).mutable_grad(), Tensor()).cpu();
      };
      const Tensor plain = gradient(Recompute::none);
      for (const Recompute how :
           {Recompute::nonreentrant, Recompute::reentrant, Recompute::selective})
        EXPECT_TRUE(gradient(how).equal(plain)) << from << with_autocast << static_cast<int>(how);
    }
}

// A part with a branch on each of two cards, whose threads need its tensors at the same time.
TEST(Checkpointed, RunsAgainOnceForSeveralDevices) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  std::atomic<int> runs = 0;
  const auto part = [&](const Tensor& in) {
    ++runs;
    const Tensor other = in.to(box.device(1)).sin().exp().sin().sum();
    return in.cos().exp().cos().sum() + other.to(box.device(0));
  };
  const Tensor x = torch::linspace(0, 1, 256).to(box.device(0));
  const auto gradient = [&](Recompute how) {
    Tensor in = x.detach().clone().requires_grad_();
    checkpointed(how, part, in).backward();
    return in.grad();
  };
  const Tensor plain = gradient(Recompute::none);
  runs = 0;
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(gradient(Recompute::nonreentrant).equal(plain));
  EXPECT_EQ(runs, 100);
}

TEST(Checkpointed, TheReentrantFormRefusesGradientsOfChosenTensors) {
  const Tensor x = torch::ones({4}).requires_grad_();
  const auto part = [](const Tensor& in) { return in.exp(); };
  const Tensor loss = checkpointed(Recompute::reentrant, part, x).sum();
  EXPECT_THROW((void)torch::autograd::grad({loss}, {x}), UsageError);
  const Tensor other = checkpointed(Recompute::nonreentrant, part, x).sum();
  EXPECT_TRUE(torch::autograd::grad({other}, {x})[0].equal(x.exp()));
}

TEST(Checkpointed, StopsAPartThatCatchesEverything) {
  const Tensor x = torch::ones({4}).requires_grad_();
  const auto part = [](const Tensor& in) {
    Tensor y = in;
    for (int i = 0; i < 3; ++i) try {
        y = y.exp();
      } catch (...) {
        y = y + 0;
      }
    return y;
  };
  checkpointed(Recompute::nonreentrant, part, x).sum().backward();
  const Tensor plain = x.detach().clone().requires_grad_();
  part(plain).sum().backward();
  EXPECT_TRUE(x.grad().equal(plain.grad()));
}

}  // namespace
}  // namespace headroom::nn
