// Eight cards in eight threads: forward, backward and optimizer at the same time, in both modes.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "headroom/libtorch/on.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"
#include "tests/sim/fixtures/step.h"

namespace headroom::sim {
namespace {

using fixtures::Step;

// One thread for each card.
void on_each_card(const Simulation& box, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < box.cards(); ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, EachTrainsOnItsCardWithTheSameOutcome) {
  for (const Mode mode : {Mode::shape_only, Mode::compute}) {
    const Simulation box = simulate("8x1GiB", {.mode = mode, .check_streams = true});
    torch::manual_seed(1);
    std::vector<double> losses(8);
    std::vector<std::int64_t> peaks(8), kept(8);
    on_each_card(box, [&](int i) {
      Step step(box.device(i));
      for (int n = 0; n < 4; ++n) losses[static_cast<std::size_t>(i)] = step.run();
      const auto now = box.card(i).statistics();
      peaks[static_cast<std::size_t>(i)] = now.allocated_bytes.all.peak;
      kept[static_cast<std::size_t>(i)] = now.allocated_bytes.all.current;
    });
    EXPECT_THAT(losses, ::testing::Each(losses[0])) << "seeded alike";
    EXPECT_EQ(losses[0] == 0, mode == Mode::shape_only);
    EXPECT_THAT(peaks, ::testing::Each(peaks[0]));
    EXPECT_THAT(kept, ::testing::Each(kept[0]));
  }
}

TEST(Threads, AnOutOfMemoryOnOneCardLeavesTheOthersAlone) {
  const Simulation box = simulate("8x1GiB", {.mode = Mode::compute});
  const InjectionScope scope(box.card(5), every(7));
  std::vector<int> failed(8);
  on_each_card(box, [&](int i) {
    for (int n = 0; n < 3; ++n) {
      try {
        Step(box.device(i)).run();
      } catch (const c10::OutOfMemoryError&) {
        ++failed[static_cast<std::size_t>(i)];
      }
    }
  });
  EXPECT_THAT(failed, ::testing::ElementsAre(0, 0, 0, 0, 0, 3, 0, 0));
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(box.card(i).statistics().allocated_bytes.all.current, 0) << i;
}

TEST(Threads, TogetherRunOneBackwardPassOverAllCards) {
  const Simulation box = simulate("8x1GiB", {.mode = Mode::compute, .check_streams = true});
  std::vector<torch::Tensor> leaves;
  torch::Tensor sum = torch::zeros({}, box.device(0));
  for (int i = 0; i < 8; ++i) {
    leaves.push_back(
        torch::full({64}, static_cast<float>(i), torch::device(box.device(i)).requires_grad(true)));
    sum = sum + leaves.back().square().sum().to(box.device(0));
  }
  sum.backward();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(leaves[static_cast<std::size_t>(i)].grad().device(), box.device(i));
    EXPECT_EQ(leaves[static_cast<std::size_t>(i)].grad()[0].item<float>(),
              2.0F * static_cast<float>(i));
  }
}

TEST(Threads, MayShareACard) {
  const Simulation box = simulate("1x1GiB", {.mode = Mode::compute, .check_streams = true});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Step step(box.device(0));
      for (int n = 0; n < 3; ++n) step.run();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(box.card(0).statistics().allocated_bytes.all.current, 0);
}

}  // namespace
}  // namespace headroom::sim
