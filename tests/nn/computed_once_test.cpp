// Sections of checkpointed parts that are computed once (nn/checkpoint.h).
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/nn/offload.h"
#include "headroom/sim/simulate.h"

namespace headroom::nn {
namespace {

using torch::Tensor;

constexpr Recompute kEach[] = {Recompute::none, Recompute::nonreentrant, Recompute::reentrant,
                               Recompute::selective};

std::int64_t allocated_on(torch::Device device) {
  return memory::get_gpu_memory_stats(device).allocated.count;
}

// A layer whose attention is such a section, with dropout before, in and behind it.
struct AttentionLayer {
  explicit AttentionLayer(torch::Device device) {
    torch::manual_seed(1);
    for (Tensor& weight : weights)
      weight = (torch::randn({16, 16}) / 4).to(device).requires_grad_();
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor in = torch::dropout(x, 0.2, true);
    const auto heads = [&](const Tensor& weight) {
      return torch::mm(in, weight).view({-1, 2, 8}).transpose(0, 1);
    };
    const auto attention = [this](const Tensors& of) -> Tensors {
      ++runs;
      const Tensor shares = torch::softmax(torch::bmm(of[0], of[1].transpose(1, 2)), -1);
      return {torch::bmm(torch::dropout(shares, 0.2, true), of[2]), shares};
    };
    const Tensors seen =
        computed_once(attention, {heads(weights[0]), heads(weights[1]), heads(weights[2])});
    const Tensor out = seen[0].transpose(0, 1).reshape({-1, 16});
    return x + torch::dropout(torch::tanh(out), 0.2, true) * seen[1].sum();
  }
  std::array<Tensor, 3> weights;
  mutable int runs = 0;
};

struct Pass {
  std::vector<Tensor> tensors;
  int runs = 0;
};

// Two layers. `around`: how both of them, as one part, are checkpointed.
Pass pass_of(torch::Device device, Recompute how, Recompute around = Recompute::none,
             bool offloads = false) {
  const AttentionLayer layer(device);
  Tensor x = torch::randn({8, 16}).to(device).requires_grad_();
  at::Generator(at::globalContext().defaultGenerator(device)).set_current_seed(7);
  const auto one = [&](const Tensor& in) { return layer(in); };
  const auto both = [&](const Tensor& in) {
    return checkpointed(how, one, checkpointed(how, one, in));
  };
  Tensor loss;
  if (offloads) {
    Offload offload({layer.weights.begin(), layer.weights.end()}, {.smallest = Bytes{1}});
    const auto scope = offload.scope();
    loss = checkpointed(around, both, x).sum();
  } else {
    loss = checkpointed(around, both, x).sum();
  }
  loss.backward();
  Pass result{{x.grad().cpu(), torch::rand({4}, device).cpu()}, layer.runs};
  for (const Tensor& weight : layer.weights) result.tensors.push_back(weight.grad().cpu());
  return result;
}

void expect_same(const Pass& one, const Pass& other, const std::string& where) {
  for (std::size_t i = 0; i < one.tensors.size(); ++i)
    EXPECT_TRUE(one.tensors[i].equal(other.tensors[i])) << where << ", number " << i;
}

TEST(ComputedOnce, GivesTheSameGradientsAndRandomNumbers) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const torch::Device device : {torch::Device(torch::kCPU), box.device(0)}) {
    const Pass plain = pass_of(device, Recompute::none);
    EXPECT_EQ(plain.runs, 2);
    for (const Recompute how : {Recompute::nonreentrant, Recompute::reentrant}) {
      const Pass again = pass_of(device, how);
      expect_same(again, plain, device.str());
      EXPECT_EQ(again.runs, 4);
    }
    const Pass once = pass_of(device, Recompute::selective);
    expect_same(once, plain, device.str() + " selective");
    EXPECT_EQ(once.runs, 2);
  }
}

// A part around runs the sections inside again, unless they are its own.
TEST(ComputedOnce, GoesWithNestedPartsAndOffload) {
  const sim::Simulation box = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
  for (const torch::Device device : {torch::Device(torch::kCPU), box.device(0)}) {
    const Pass plain = pass_of(device, Recompute::none);
    for (const Recompute how : kEach)
      for (const Recompute around : kEach)
        for (const bool offloads : {false, true}) {
          const Pass result = pass_of(device, how, around, offloads);
          const std::string where = device.str() + ", " + std::to_string(static_cast<int>(how)) +
                                    " in " + std::to_string(static_cast<int>(around));
          expect_same(result, plain, where);
          if (how == Recompute::selective && around == Recompute::nonreentrant) {
            EXPECT_EQ(result.runs, 4) << where;
          }
          if (how == Recompute::none && around == Recompute::selective) {
            EXPECT_EQ(result.runs, 2) << where;
          }
        }
  }
}

// Of 1 MiB each: the section saves its input, a view of it and its result.
TEST(ComputedOnce, KeepsResultsAndNotInputs) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto section = [](const Tensors& in) -> Tensors {
    return {(in[0].sin() * in[0].view({2, -1}).sin().view(-1)).exp()};
  };
  const auto part = [&](const Tensor& x) {
    return computed_once(section, {x.exp().exp()})[0].exp();
  };
  const auto kept = [&](Recompute how) {
    Tensor x = torch::empty({1 << 18}, box.device(0)).requires_grad_();
    const std::int64_t before = allocated_on(box.device(0));
    Tensor y = checkpointed(how, part, x);
    y = y.sum();
    const std::int64_t held = allocated_on(box.device(0)) - before - 512;
    y.backward();
    return held >> 20;
  };
  EXPECT_EQ(kept(Recompute::none), 6);
  EXPECT_EQ(kept(Recompute::nonreentrant), 0);
  EXPECT_EQ(kept(Recompute::selective), 3) << "both factors, and the result";
}

TEST(ComputedOnce, GivesAllMemoryBack) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  for (const bool backward : {false, true}) {
    const AttentionLayer layer(box.device(0));
    const std::int64_t before = allocated_on(box.device(0));
    {
      Tensor x = torch::empty({8, 16}, box.device(0)).requires_grad_();
      const Tensor loss = checkpointed(
                              Recompute::selective, [&](const Tensor& in) { return layer(in); }, x)
                              .sum();
      if (backward) loss.backward();
      for (const Tensor& weight : layer.weights) weight.mutable_grad().reset();
    }
    EXPECT_EQ(allocated_on(box.device(0)), before);
  }
}

TEST(ComputedOnce, CanRunBackwardTwice) {
  const AttentionLayer layer(torch::kCPU);
  Tensor x = torch::randn({8, 16}).requires_grad_();
  const Tensor loss = checkpointed(
                          Recompute::selective, [&](const Tensor& in) { return layer(in); }, x)
                          .sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  loss.backward();
  EXPECT_TRUE(x.grad().equal(once * 2));
  EXPECT_EQ(layer.runs, 1);
}

TEST(ComputedOnce, TakesAndGivesUndefinedTensorsAndThoseWithoutGradient) {
  for (const Recompute how : kEach) {
    const auto section = [](const Tensors& in) -> Tensors {
      EXPECT_FALSE(in[1].defined());
      return {in[0] * in[0], Tensor(), in[0].detach().round()};
    };
    const auto part = [&](const Tensor& x) {
      const Tensors out = computed_once(section, {x.exp(), Tensor()});
      EXPECT_FALSE(out[1].defined());
      EXPECT_FALSE(out[2].requires_grad());
      return out[0] * out[0] * out[2];
    };
    Tensor x = torch::ones({3}).requires_grad_();
    checkpointed(how, part, x).sum().backward();
    EXPECT_TRUE(x.grad().allclose(4 * torch::ones({3}).mul(4).exp() * 3)) << static_cast<int>(how);
  }
}

TEST(ComputedOnce, RunsPlainlyOutsideOfAPart) {
  int runs = 0;
  const auto section = [&](const Tensors& in) -> Tensors { return ++runs, Tensors{in[0].exp()}; };
  Tensor x = torch::ones({3}).requires_grad_();
  computed_once(section, {x})[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(torch::ones({3}).exp()));
  EXPECT_EQ(runs, 1);
}

// The second run would go on with other values.
TEST(ComputedOnce, RefusesAResultThatWasChangedSince) {
  const auto section = [](const Tensors& in) -> Tensors { return {in[0] + 1}; };
  const auto part = [&](const Tensor& x) {
    return computed_once(section, {x.exp()})[0].add_(1).exp();
  };
  Tensor x = torch::ones({3}).requires_grad_();
  const Tensor loss = checkpointed(Recompute::selective, part, x).sum();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(ComputedOnce, RefusesAPartWithOtherSectionsTheSecondTime) {
  const auto section = [](const Tensors& in) -> Tensors { return {in[0].exp()}; };
  for (const bool more : {false, true}) {
    int runs = 0;
    const auto part = [&](const Tensor& x) {
      const bool second = ++runs == 2;
      Tensor y = second && !more ? x.exp() : computed_once(section, {x.sin()})[0];
      if (second && more) y = computed_once(section, {y})[0];
      return y.exp();
    };
    Tensor x = torch::ones({3}).requires_grad_();
    const Tensor loss = checkpointed(Recompute::selective, part, x).sum();
    try {
      loss.backward();
      ADD_FAILURE() << "it was taken";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("saves the same tensors each time"));
    }
  }
}

}  // namespace
}  // namespace headroom::nn
