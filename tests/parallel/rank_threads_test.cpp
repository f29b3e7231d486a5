#include "headroom/parallel/rank_threads.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "headroom/base/error.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

const std::vector<c10::Device> kThree(3, c10::Device(c10::kCPU));

TEST(RankThreads, EachRankHasTheSameThreadEachTime) {
  RankThreads threads(kThree);
  std::vector<std::thread::id> first(3), second(3);
  threads.run(
      [&](int rank) { first[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  threads.run(
      [&](int rank) { second[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], std::this_thread::get_id());
}

TEST(RankThreads, OneRankIsTheCaller) {
  std::thread::id there;
  RankThreads({c10::Device(c10::kCPU)}).run([&](int) { there = std::this_thread::get_id(); });
  EXPECT_EQ(there, std::this_thread::get_id());
}

TEST(RankThreads, AutogradsStateIsThatOfTheCaller) {
  RankThreads threads(kThree);
  std::atomic<int> with_gradients = 0;
  const auto count = [&](int) { with_gradients += torch::GradMode::is_enabled() ? 1 : 0; };
  threads.run(count);
  EXPECT_EQ(with_gradients, 3);
  const torch::NoGradGuard no_grad;
  threads.run(count);
  EXPECT_EQ(with_gradients, 3);
}

TEST(RankThreads, TheLowestRanksExceptionIsThrownWhenAllHaveEnded) {
  RankThreads threads(kThree);
  std::atomic<int> ended = 0;
  const auto work = [&](int rank) {
    ++ended;
    if (rank > 0) throw std::runtime_error("rank " + std::to_string(rank));
  };
  try {
    threads.run(work);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "rank 1");
  }
  EXPECT_EQ(ended, 3);
  threads.run([&](int) { ++ended; });  // and the next run has none
  EXPECT_EQ(ended, 6);
}

TEST(RankThreads, ShareTheProcessorsAndGiveThemBack) {
  const int before = at::get_num_threads();
  at::set_num_threads(7);
  {
    RankThreads threads(kThree);
    threads.run([](int) {
      EXPECT_EQ(at::get_num_threads(), 2);
      EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
    });
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
  int later = 0;
  std::thread([&] {
    at::init_num_threads();
    later = at::get_num_threads();
  }).join();
  EXPECT_EQ(later, 7);
  at::set_num_threads(before);
}

TEST(RankThreads, ARanksDeviceIsTheCurrentOne) {
  const sim::Simulation box = sim::simulate("3x1GiB");
  RankThreads threads({box.device(2), box.device(0)});
  std::vector<c10::DeviceIndex> found(2);
  threads.run([&](int rank) {
    found[static_cast<std::size_t>(rank)] =
        torch::empty({1}, torch::Device(box.device(0).type())).device().index();
  });
  EXPECT_EQ(found, (std::vector<c10::DeviceIndex>{2, 0}));
}

TEST(RankThreads, NoDeviceIsNoTeam) {
  EXPECT_THROW(RankThreads({}), UsageError);
}

// Plans are priced in a child process. One that was forked while a rank's thread began waited for
// ever for a lock of LibTorch's. A suite of its own: what LibTorch begins once must not have begun.
TEST(RankThreadsBegun, LetAProcessFork) {
  for (int i = 0; i < 40; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);
      const RankThreads threads(std::vector<c10::Device>(6, c10::Device(c10::kCPU)));
      const pid_t grandchild = ::fork();
      if (grandchild == 0) {
        ::alarm(10);
        at::set_num_threads(1);
        ::_exit(0);
      }
      int status = 1;
      ::waitpid(grandchild, &status, 0);
      ::_exit(status == 0 ? 0 : 1);
    }
    int status = 1;
    ::waitpid(child, &status, 0);
    ASSERT_EQ(status, 0) << "time " << i + 1;
  }
}

}  // namespace
}  // namespace headroom::parallel
