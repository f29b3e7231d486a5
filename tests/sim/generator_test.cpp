// Random numbers on a card: a state of its own, and the CPU's numbers for the same seed.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "headroom/sim/simulate.h"

namespace headroom::sim {
namespace {

class Generator : public ::testing::Test {
 protected:
  [[nodiscard]] at::Generator of(int card) const {
    return at::globalContext().defaultGenerator(box_.device(card));
  }

  // The same function after the same seed, on the CPU and on a card.
  void expect_as_on_cpu(const char* what,
                        const std::function<torch::Tensor(torch::Device)>& draw) const {
    torch::manual_seed(7);
    const torch::Tensor expected = draw(torch::kCPU);
    torch::manual_seed(7);
    const torch::Tensor drawn = draw(box_.device(0));
    EXPECT_EQ(drawn.device(), box_.device(0)) << what;
    EXPECT_TRUE(torch::equal(drawn.cpu(), expected)) << what;
  }

  Simulation box_ = simulate("2x1GiB", {.mode = Mode::compute});
};

TEST_F(Generator, GivesTheCpusNumbersForTheSameSeed) {
  using torch::Device;
  expect_as_on_cpu("randn", [](Device d) { return torch::randn({100}, d); });
  expect_as_on_cpu("randn, half", [](Device d) {
    return torch::randn({7}, torch::device(d).dtype(torch::kBFloat16));
  });
  expect_as_on_cpu("rand", [](Device d) { return torch::rand({100}, d); });
  expect_as_on_cpu("randint", [](Device d) { return torch::randint(1000, {100}, d); });
  expect_as_on_cpu("randperm", [](Device d) { return torch::randperm(100, d); });
  expect_as_on_cpu("normal_", [](Device d) { return torch::empty({5, 5}, d).normal_(1, 2); });
  expect_as_on_cpu("uniform_", [](Device d) { return torch::empty({33}, d).uniform_(-1, 1); });
  expect_as_on_cpu("bernoulli",
                   [](Device d) { return torch::bernoulli(torch::full({99}, 0.3, d)); });
  expect_as_on_cpu("bernoulli_", [](Device d) { return torch::empty({99}, d).bernoulli_(0.3); });
  expect_as_on_cpu("exponential_", [](Device d) { return torch::empty({9}, d).exponential_(); });
  expect_as_on_cpu("multinomial",
                   [](Device d) { return torch::multinomial(torch::ones({20}, d), 5); });
  expect_as_on_cpu("dropout",
                   [](Device d) { return torch::dropout(torch::ones({99}, d), 0.3, true); });
  expect_as_on_cpu("feature_dropout", [](Device d) {
    return torch::feature_dropout(torch::ones({4, 5, 6}, d), 0.5, true);
  });
  expect_as_on_cpu("alpha_dropout",
                   [](Device d) { return torch::alpha_dropout(torch::ones({99}, d), 0.3, true); });
}

TEST_F(Generator, OfEachCardIsItsOwn) {
  torch::manual_seed(3);
  const torch::Tensor first = torch::rand({4}, box_.device(0));
  (void)torch::rand({4}, box_.device(0));
  EXPECT_TRUE(torch::equal(torch::rand({4}, box_.device(1)).cpu(), first.cpu()))
      << "seeded alike, drawn from apart";
  of(1).set_current_seed(4);
  EXPECT_EQ(of(0).current_seed(), 3u);
  EXPECT_EQ(of(1).current_seed(), 4u);
}

TEST_F(Generator, LeavesTheCpusAlone) {
  torch::manual_seed(3);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  (void)torch::rand({4}, box_.device(0));
  (void)torch::dropout(torch::ones({9}, box_.device(0)), 0.5, true);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST_F(Generator, RestoresASavedState) {
  const torch::Tensor state = of(0).get_state();
  const torch::Tensor first = torch::randn({7}, box_.device(0)).cpu();
  EXPECT_FALSE(torch::equal(torch::randn({7}, box_.device(0)).cpu(), first));
  of(0).set_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({7}, box_.device(0)).cpu(), first));
}

TEST_F(Generator, ACloneContinuesOnItsOwnFromTheSameState) {
  at::Generator clone = of(0).clone();
  EXPECT_EQ(clone.device(), box_.device(0));
  const torch::Tensor drawn = torch::rand({5}, box_.device(0));
  EXPECT_TRUE(torch::equal(torch::rand({5}, clone, box_.device(0)).cpu(), drawn.cpu()));
}

TEST_F(Generator, ANewOneHasItsOwnSeed) {
  at::Generator own = at::globalContext()
                          .getAcceleratorHooksInterface(c10::DeviceType::PrivateUse1)
                          .getNewGenerator(1);
  own.set_current_seed(11);
  torch::manual_seed(12);
  const torch::Tensor drawn = torch::rand({5}, own, box_.device(1)).cpu();
  EXPECT_TRUE(torch::equal(torch::rand({5}, at::detail::createCPUGenerator(11)), drawn));
  EXPECT_NE(own.seed(), 11u) << "a seed chosen at random";
}

TEST_F(Generator, OfTheCpuIsRefusedAsCudaRefusesIt) {
  const at::Generator of_cpu = at::detail::createCPUGenerator();
  torch::Tensor x = torch::zeros({4}, box_.device(0));
  try {
    x.uniform_(0, 1, of_cpu);
    ADD_FAILURE() << "it is not refused";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr("Expected a 'sim' device type for generator but found 'cpu'"));
  }
  EXPECT_EQ(x.sum().item<float>(), 0.0F);
}

TEST_F(Generator, HasNoOffsetAsTheCpusHasNone) {
  EXPECT_THROW((void)of(0).get_offset(), c10::NotImplementedError);
  EXPECT_THROW(of(0).set_offset(4), c10::NotImplementedError);
}

TEST_F(Generator, MayBeSeededWhileOtherThreadsDraw) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this, i] {
      for (int n = 0; n < 50; ++n) {
        if (i == 0) of(0).set_current_seed(1);
        if (i == 1) (void)of(0).get_state();
        (void)torch::rand({16}, box_.device(0));
      }
    });
  for (std::thread& thread : threads) thread.join();
  of(0).set_current_seed(5);
  EXPECT_TRUE(torch::equal(torch::rand({3}, box_.device(0)).cpu(),
                           torch::rand({3}, at::detail::createCPUGenerator(5))));
}

}  // namespace
}  // namespace headroom::sim
