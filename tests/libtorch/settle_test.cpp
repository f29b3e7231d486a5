// settle(): after a backward pass that threw, no other card's thread touches anything any more.
#include "headroom/libtorch/settle.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "headroom/libtorch/random_state.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::libtorch {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int kCards = 8;

// The thread of a backward pass runs the CPU's nodes. It leaves the pass after one of them if
// another thread has failed; else it waits until all threads are done.
constexpr int kCpu = -1;

// Written by backward nodes and read after settle(), without any lock: what the thread sanitizer
// looks at.
std::array<int, kCards + 1> visits{};
std::function<void(int)> in_node;

// Notes each visit of its card's thread.
struct Noted : Function<Noted> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    const int card = gradients[0].get_device();
    ++visits[static_cast<std::size_t>(card + 1)];
    if (in_node) in_node(card);
    return {gradients[0] * 2};  // a request of the card
  }
};

// A chain on each card and on the CPU; the sum lies on the first card.
struct Net {
  explicit Net(const sim::Simulation& box) : weights{torch::ones({64}).requires_grad_()} {
    for (int i = 0; i < kCards; ++i)
      weights.push_back(torch::ones({64}, box.device(i)).requires_grad_());
  }
  [[nodiscard]] Tensor loss() const {
    Tensor sum;
    for (const Tensor& weight : weights) {
      Tensor x = weight;
      for (int i = 0; i < 3; ++i) x = Noted::apply(x);
      x = x.sum().to(weights[0].device());
      sum = sum.defined() ? sum + x : x;
    }
    return sum;
  }
  void drop_gradients() {
    for (Tensor& weight : weights) weight.mutable_grad().reset();
  }
  std::vector<Tensor> weights;
};

int rounds() {
  const char* const asked = std::getenv("HEADROOM_SETTLE_ROUNDS");
  return asked == nullptr ? 300 : std::atoi(asked);
}

// The full form, 10,000 rounds, is `make settle`.
TEST(Settle, NothingRunsOrWritesAfterwards) {
  const sim::Simulation box = sim::simulate("8x1GiB", {.mode = sim::Mode::compute});
  Net net(box);
  int failed = 0;
  for (int round = 0; round < rounds(); ++round) {
    Tensor loss = net.loss();
    const sim::InjectionScope scope(box.card(round % kCards),
                                    sim::once(static_cast<std::uint64_t>(1 + round / kCards % 5)));
    try {
      loss.backward();
    } catch (const c10::OutOfMemoryError&) {
      ++failed;
      settle(devices_of(net.weights));
    }
    visits.fill(0);
    net.drop_gradients();
    loss.reset();
    for (int i = 0; i < kCards; ++i)
      EXPECT_EQ(box.card(i).statistics().allocated_bytes.all.current, 512) << "round " << round;
  }
  EXPECT_GT(failed, rounds() / 2);
  visits.fill(0);
  net.loss().backward();
  EXPECT_THAT(visits, ::testing::Each(3));
  for (const Tensor& weight : net.weights)
    EXPECT_TRUE(weight.grad().cpu().equal(torch::full({64}, 8.0F)));
}

// A card's thread is held in its node until the pass has thrown on another card.
TEST(Settle, WaitsForANodeThatStillRuns) {
  const sim::Simulation box = sim::simulate("8x1GiB", {.mode = sim::Mode::compute});
  Net net(box);
  std::atomic<bool> entered = false, thrown = false, left = false;
  in_node = [&](int card) {
    if (card == 3 && !entered.exchange(true)) {
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      left = true;
    } else if (card == kCpu) {
      while (!entered) std::this_thread::yield();
      throw std::runtime_error("this fails");
    }
  };
  EXPECT_THROW(net.loss().backward(), std::runtime_error);
  EXPECT_TRUE(entered);
  EXPECT_FALSE(left);
  thrown = true;
  settle(devices_of(net.weights));
  EXPECT_TRUE(left);
  EXPECT_FALSE(net.weights[3 + 1].grad().defined()) << "what followed the node does not run";
  in_node = nullptr;
}

// The node of one card runs a backward pass of its own, on another card.
TEST(Settle, WaitsForANodeWithABackwardPassInside) {
  const sim::Simulation box = sim::simulate("8x1GiB", {.mode = sim::Mode::compute});
  const Tensor x = torch::ones({8}, box.device(3)).requires_grad_();
  const Tensor failing = torch::ones({8}).requires_grad_();
  std::atomic<bool> entered = false, thrown = false, left = false;
  in_node = [&](int card) {
    if (card == 3) {
      const Tensor inner = torch::ones({8}, box.device(6)).requires_grad_();
      const at::AutoGradMode with_graph(true);
      Noted::apply(inner).sum().backward();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      left = true;
    } else if (card == 6) {
      entered = true;
      while (!thrown) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else if (card == kCpu) {
      while (!entered) std::this_thread::yield();
      throw std::runtime_error("this fails");
    }
  };
  // Autograd begins with what was computed last.
  const Tensor fails = Noted::apply(failing).sum(), works = Noted::apply(x).sum().cpu();
  EXPECT_THROW((fails + works).backward(), std::runtime_error);
  EXPECT_FALSE(left);
  thrown = true;
  settle({box.device(3)});
  EXPECT_TRUE(left);
  in_node = nullptr;
}

TEST(Settle, AsksForNoMemory) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const Tensor x = torch::ones({4}, box.device(1)).requires_grad_();
  (x * 2).sum().backward();
  const sim::InjectionScope scope(box, sim::every(1));
  settle({box.device(0), box.device(1), at::kCPU, at::kMeta});
}

TEST(Settle, LeavesPassesOfOtherThreadsAlone) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  std::atomic<bool> entered = false, go_on = false;
  in_node = [&](int card) {
    if (card == kCpu) throw std::runtime_error("this fails");
    entered = true;
    while (!go_on) std::this_thread::yield();
  };
  const Tensor healthy = torch::ones({4}, box.device(1)).requires_grad_();
  std::thread other([&] { Noted::apply(healthy).sum().backward(); });
  while (!entered) std::this_thread::yield();
  const Tensor failing = torch::ones({4}).requires_grad_();
  EXPECT_THROW(Noted::apply(failing).sum().backward(), std::runtime_error);
  settle({box.device(0)});
  go_on = true;
  other.join();
  EXPECT_TRUE(healthy.grad().defined());
  in_node = nullptr;
}

}  // namespace
}  // namespace headroom::libtorch
