// What a Group promises, for each kind of ranks: one alone, threads on the CPU, and threads with a
// simulated card each, under the checker of streams.
#include "headroom/parallel/group.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <optional>

#include "headroom/parallel/in_process.h"
#include "headroom/parallel/rank_threads.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

struct Kind {
  const char* name;
  int ranks;
  bool on_cards;
};

class GroupContract : public testing::TestWithParam<Kind> {
 protected:
  GroupContract() : groups_(static_cast<std::size_t>(size())) {
    if (GetParam().on_cards)
      box_.emplace(sim::simulate(std::to_string(size()) + "x1GiB",
                                 {.mode = sim::Mode::compute, .check_streams = true}));
    if (size() > 1) {
      const auto backends = in_process(size());
      for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i] = Group(backends[i]);
    }
    std::vector<c10::Device> devices;
    for (int rank = 0; rank < size(); ++rank) devices.push_back(device(rank));
    threads_.emplace(devices);
  }

  [[nodiscard]] static int size() { return GetParam().ranks; }
  [[nodiscard]] c10::Device device(int rank) const {
    return box_ ? box_->device(rank) : c10::Device(c10::kCPU);
  }
  // Calls `work(group, rank)` on each rank.
  template <typename Work>
  void each(const Work& work) {
    threads_->run([&](int rank) { work(groups_[static_cast<std::size_t>(rank)], rank); });
  }

  std::optional<sim::Simulation> box_;
  std::vector<Group> groups_;
  std::optional<RankThreads> threads_;
};

TEST_P(GroupContract, RanksAreNumberedFromZero) {
  std::atomic<int> sum = 0;
  each([&](const Group& group, int rank) {
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), size());
    sum += group.rank();
  });
  EXPECT_EQ(sum, size() * (size() - 1) / 2);
}

TEST_P(GroupContract, SumsHaveTheBitsOfAnAdditionInTheOrderOfRanks) {
  for (const torch::ScalarType type : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    for (const std::int64_t elements : {1, 2, 7, 1000}) {
      const torch::Tensor values = torch::randn({size(), elements}).to(type);
      torch::Tensor expected = values[0].clone();
      for (int rank = 1; rank < size(); ++rank) expected.add_(values[rank]);
      each([&](const Group& group, int rank) {
        const torch::Tensor mine = values[rank].to(device(rank)).clone();
        group.sum(mine);
        EXPECT_TRUE(mine.cpu().equal(expected)) << type << ", rank " << rank;
      });
    }
  }
}

TEST_P(GroupContract, SumsWhatComesNextWithoutAPause) {
  constexpr int kTimes = 50;
  each([&](const Group& group, int rank) {
    const torch::Tensor number = torch::zeros({3}, device(rank));
    for (int i = 0; i < kTimes; ++i) {
      number.fill_(rank + i);
      group.sum(number);
      EXPECT_EQ(number[2].item<double>(), size() * (size() - 1) / 2 + size() * i);
    }
  });
}

TEST_P(GroupContract, SumsNumbersOfTheHost) {
  each([&](const Group& group, int rank) {
    const std::vector<double> expected{static_cast<double>(size()), size() * (size() - 1) / 2.0};
    EXPECT_EQ(group.sum(std::vector<double>{1, static_cast<double>(rank)}), expected);
    EXPECT_TRUE(group.sum(std::vector<double>{}).empty());
  });
}

TEST_P(GroupContract, AnyIsTrueOnAllRanksIfOneSaysSo) {
  for (int who = 0; who <= size(); ++who)
    each([&](const Group& group, int rank) { EXPECT_EQ(group.any(rank == who), who < size()); });
}

TEST_P(GroupContract, BroadcastsFromAnyRank) {
  for (int from = 0; from < size(); ++from)
    each([&](const Group& group, int rank) {
      const torch::Tensor values = torch::full({5}, rank, device(rank));
      group.broadcast(values, from);
      EXPECT_TRUE(values.cpu().equal(torch::full({5}, from)));
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupContract,
                         testing::Values(Kind{"One", 1, false}, Kind{"TwoOnTheCpu", 2, false},
                                         Kind{"SevenOnTheCpu", 7, false}, Kind{"OneCard", 1, true},
                                         Kind{"TwoCards", 2, true}, Kind{"FourCards", 4, true}),
                         [](const auto& shape) { return shape.param.name; });

// ---- Ranks that are threads ----

class InProcess : public GroupContract {};

TEST_P(InProcess, HandsATensorOnWhenItIsAskedFor) {
  each([&](const Group& group, int rank) {
    std::vector<torch::Tensor> given{torch::full({4}, rank, device(rank))};
    std::vector<torch::Tensor> taken{torch::empty({4}, device(rank)).to(torch::kLong)};
    const int next = (rank + 1) % size(), last = (rank + size() - 1) % size();
    const auto sent = group.backend()->send(given, next, 0);
    group.backend()->recv(taken, last, 0)->wait();
    sent->wait();
    EXPECT_TRUE(taken[0].cpu().equal(torch::full({4}, last)));
  });
}

TEST_P(InProcess, MessagesOfALaneKeepTheirOrderAndTagsKeepApart) {
  each([&](const Group& group, int rank) {
    if (rank > 1) return;
    std::vector<torch::Tensor> one{torch::zeros({1}, device(rank))};
    if (rank == 0) {
      for (const double value : {1, 2, 3}) {
        std::vector<torch::Tensor> next{torch::full({1}, value, device(rank))};
        static_cast<void>(group.backend()->send(next, 1, value == 2 ? 7 : 0));
      }
      return;
    }
    for (const auto& [tag, value] : {std::pair(7, 2), std::pair(0, 1), std::pair(0, 3)}) {
      group.backend()->recv(one, 0, tag)->wait();
      EXPECT_EQ(one[0].item<double>(), value);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, InProcess,
                         testing::Values(Kind{"TwoOnTheCpu", 2, false}, Kind{"TwoCards", 2, true},
                                         Kind{"FourCards", 4, true}),
                         [](const auto& shape) { return shape.param.name; });

class OnCards : public GroupContract {};

TEST_P(OnCards, ARankWithoutMemoryForScratchThrowsAndKeepsNoOtherWaiting) {
  std::atomic<int> thrown = 0;
  each([&](const Group& group, int rank) {
    const torch::Tensor mine = torch::ones({100}, device(rank));
    const auto fails = rank == 1 ? sim::once(1) : sim::once(1'000'000);
    const sim::InjectionScope inner(box_->card(rank), fails);
    try {
      group.sum(mine);
    } catch (const c10::OutOfMemoryError&) {
      EXPECT_EQ(rank, 1);
      ++thrown;
    }
    group.sum(mine.fill_(1));
    EXPECT_EQ(mine[99].item<double>(), size());
  });
  EXPECT_EQ(thrown, 1);
}

TEST_P(OnCards, ASumKeepsScratchOfTwoParts) {
  constexpr std::int64_t kBytes = 8 << 20;
  std::vector<torch::Tensor> values;
  for (int rank = 0; rank < size(); ++rank)
    values.push_back(torch::ones({kBytes}, torch::dtype(torch::kByte).device(device(rank))));
  const auto before = box_->card(0).statistics().requested_bytes.all.current;
  for (int times = 0; times < 3; ++times)
    each([&](const Group& group, int rank) { group.sum(values[static_cast<std::size_t>(rank)]); });
  const auto now = box_->card(0).statistics().requested_bytes.all;
  EXPECT_EQ(now.current - before, 2 * kBytes / size());
  EXPECT_EQ(now.peak, now.current);
}

INSTANTIATE_TEST_SUITE_P(Ranks, OnCards,
                         testing::Values(Kind{"TwoCards", 2, true}, Kind{"FourCards", 4, true}),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace headroom::parallel
