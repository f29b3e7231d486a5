// Gradients of replicas on simulated cards that compute, under the checker of streams.
#include "headroom/parallel/reducer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <map>

#include "headroom/base/error.h"
#include "headroom/nn/checkpoint.h"
#include "headroom/parallel/in_process.h"
#include "headroom/parallel/rank_threads.h"
#include "headroom/parallel/replicas.h"
#include "headroom/sim/injection.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

using torch::Tensor;

constexpr int kRanks = 3;
constexpr Bytes kBucket{2 << 10};  // less than the largest parameter

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(20, 40));
    second = register_module("second", torch::nn::Linear(40, 40));
    aside = register_module("aside", torch::nn::Linear(20, 5));
    unused = register_module("unused", torch::nn::Linear(3, 3));
    last = register_module("last", torch::nn::Linear(40, 5));
  }
  Tensor forward(const Tensor& x) { return last(torch::relu(second(torch::relu(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, aside{nullptr}, unused{nullptr}, last{nullptr};
};
TORCH_MODULE(Net);

class ReducerTest : public testing::Test {
 protected:
  ReducerTest() {
    const auto backends = in_process(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      reducers_.push_back(
          std::make_unique<Reducer>(net_[static_cast<std::size_t>(rank)]->parameters(),
                                    Group(backends[static_cast<std::size_t>(rank)]), kBucket));
      reducers_.back()->reserve();
    }
  }

  static std::vector<c10::Device> devices(const sim::Simulation& box) {
    std::vector<c10::Device> all;
    for (int rank = 0; rank < kRanks; ++rank) all.push_back(box.device(rank));
    return all;
  }

  // The loss of the rows of a rank.
  Tensor loss(int rank, const Tensor& rows) {
    Net& net = net_[static_cast<std::size_t>(rank)];
    return net->forward(rows.to(box_.device(rank))).square().sum();
  }

  // Calls `work(reducer, rank)` on each rank.
  template <typename Work>
  void each(const Work& work) {
    threads_.run([&](int rank) { work(*reducers_[static_cast<std::size_t>(rank)], rank); });
  }

  // Of each parameter, the gradients of all ranks added in their order, without a reducer.
  std::map<std::string, Tensor> expected(const std::function<Tensor(int)>& loss_of) {
    std::map<std::string, Tensor> sums;
    for (int rank = 0; rank < kRanks; ++rank) {
      Net& net = net_[static_cast<std::size_t>(rank)];
      net->zero_grad();
      const Tensor one = loss_of(rank);
      if (one.defined()) one.backward();
      for (const auto& parameter : net->named_parameters()) {
        const Tensor gradient = parameter->grad();
        Tensor& sum = sums[parameter.key()];
        if (gradient.defined()) sum = sum.defined() ? sum + gradient.cpu() : gradient.cpu();
      }
      net->zero_grad();
    }
    return sums;
  }

  void expect(const std::map<std::string, Tensor>& sums) {
    for (int rank = 0; rank < kRanks; ++rank)
      for (const auto& parameter : net_[static_cast<std::size_t>(rank)]->named_parameters()) {
        const Tensor& sum = sums.at(parameter.key());
        ASSERT_EQ(parameter->grad().defined(), sum.defined()) << parameter.key();
        if (sum.defined()) {
          EXPECT_TRUE(parameter->grad().cpu().equal(sum)) << parameter.key() << ", rank " << rank;
        }
      }
  }

  const sim::Simulation box_ = sim::simulate(std::to_string(kRanks) + "x1GiB",
                                             {.mode = sim::Mode::compute, .check_streams = true});
  Replicas<Net> net_{devices(box_), [] { return Net(); }};
  std::vector<std::unique_ptr<Reducer>> reducers_;
  RankThreads threads_{devices(box_)};
  const Tensor rows_ = torch::randn({kRanks, 4, 20});
};

TEST_F(ReducerTest, EachReplicaGetsTheSumsToTheBit) {
  const auto sums = expected([&](int rank) { return loss(rank, rows_[rank]); });
  for (int times = 0; times < 3; ++times) {
    each([&](Reducer& reducer, int rank) {
      net_[static_cast<std::size_t>(rank)]->zero_grad();
      const Tensor one = loss(rank, rows_[rank]);
      reducer.arm();
      one.backward();
      reducer.finish(true);
    });
    expect(sums);
  }
}

// One that wakes up later is added up as well.
TEST_F(ReducerTest, ParametersWithoutAGradientMayGetOneLater) {
  for (const bool uses_aside : {false, true, true, false, true}) {
    const auto one_of = [&](int rank) {
      Tensor one = loss(rank, rows_[rank]);
      if (uses_aside) {
        const auto device = box_.device(rank);
        one = one + net_[static_cast<std::size_t>(rank)]->aside(rows_[rank].to(device)).sum();
      }
      return one;
    };
    const auto sums = expected(one_of);
    each([&](Reducer& reducer, int rank) {
      const Tensor one = one_of(rank);
      reducer.arm();
      one.backward();
      reducer.finish(true);
    });
    expect(sums);
    EXPECT_EQ(sums.at("aside.weight").defined(), uses_aside);
    for (Net& net : net_) net->zero_grad();
  }
}

TEST_F(ReducerTest, OnlyTheLastPartIsSent) {
  const auto both = [&](int rank) { return loss(rank, rows_[rank]) + 2 * loss(rank, rows_[rank]); };
  each([&](Reducer& reducer, int rank) {
    loss(rank, rows_[rank]).backward();
    EXPECT_EQ(reducer.sent(), 0U);
    const Tensor one = 2 * loss(rank, rows_[rank]);
    reducer.arm();
    one.backward();
    reducer.finish(true);
  });
  const Tensor found = net_[1]->first->weight.grad().cpu();
  const auto sums = expected(both);
  EXPECT_TRUE(torch::allclose(found, sums.at("first.weight"), 1e-5));
}

// From the second step on, buckets do not wait for `aside` and `unused`, which get no gradient.
TEST_F(ReducerTest, TheFirstBucketGoesBeforeTheLastGradientIsThere) {
  std::atomic<std::size_t> sent_before = 0;
  net_[0]->first->weight.register_hook([&](const Tensor& gradient) {
    sent_before = reducers_[0]->sent();
    return gradient;
  });
  for (int step = 0; step < 2; ++step) {
    sent_before = 0;
    each([&](Reducer& reducer, int rank) {
      const Tensor one = loss(rank, rows_[rank]);
      reducer.arm();
      one.backward();
      reducer.finish(true);
    });
    EXPECT_EQ(sent_before > 0, step > 0);
  }
  EXPECT_GT(sent_before, 1U);
  EXPECT_LT(sent_before, reducers_[0]->buckets());
}

// Parameters without a gradient keep their buckets until finish(); the others go with them.
TEST_F(ReducerTest, AParameterThatOneRankUsesHasAGradientOnAll) {
  const auto loss_of = [&](int rank) {
    if (rank != 1) return loss(rank, rows_[rank]);
    return net_[1]->aside(rows_[rank].to(box_.device(1))).sum();
  };
  const auto sums = expected(loss_of);
  each([&](Reducer& reducer, int rank) {
    const Tensor one = loss_of(rank);
    reducer.arm();
    one.backward();
    reducer.finish(true);
  });
  EXPECT_FALSE(sums.at("unused.weight").defined());
  EXPECT_TRUE(sums.at("aside.weight").defined());
  expect(sums);
}

TEST_F(ReducerTest, ARankWithoutRowsGetsTheSumsOfTheOthers) {
  const auto loss_of = [&](int rank) { return rank == 2 ? Tensor() : loss(rank, rows_[rank]); };
  const auto sums = expected(loss_of);
  each([&](Reducer& reducer, int rank) {
    if (const Tensor one = loss_of(rank); one.defined()) {
      reducer.arm();
      one.backward();
    }
    reducer.finish(true);
  });
  expect(sums);
}

TEST_F(ReducerTest, AFailedRankKeepsNoOtherWaiting) {
  for (std::uint64_t request = 1;; ++request) {
    std::atomic<int> failed = 0;
    const sim::InjectionScope scope(box_.card(1), sim::once(request));
    each([&](Reducer& reducer, int rank) {
      bool ok = true;
      try {
        const Tensor one = loss(rank, rows_[rank]);
        reducer.arm();
        one.backward();
      } catch (const c10::OutOfMemoryError&) {
        ok = false;
      }
      try {
        reducer.finish(ok);
      } catch (const c10::OutOfMemoryError&) {
        ok = false;
      }
      failed += ok ? 0 : 1;
      net_[static_cast<std::size_t>(rank)]->zero_grad();
    });
    EXPECT_LE(failed, 1);
    if (failed == 0) {
      EXPECT_GT(request, 10U);
      break;
    }
  }
  const auto sums = expected([&](int rank) { return loss(rank, rows_[rank]); });
  each([&](Reducer& reducer, int rank) {
    const Tensor one = loss(rank, rows_[rank]);
    reducer.arm();
    one.backward();
    reducer.finish(true);
  });
  expect(sums);
}

TEST_F(ReducerTest, TwoBucketsAreItsMemory) {
  const auto before = box_.card(0).statistics().requested_bytes.all.current;
  Reducer another(net_[0]->parameters(), Group(), kBucket);
  another.reserve();
  another.reserve();
  EXPECT_EQ(box_.card(0).statistics().requested_bytes.all.current - before, 2 * kBucket.count);
}

TEST_F(ReducerTest, AWeightThatReentrantPartsShareIsRefused) {
  std::atomic<int> refused = 0;
  each([&](Reducer& reducer, int rank) {
    Net& net = net_[static_cast<std::size_t>(rank)];
    Tensor x = net->first(rows_[rank].to(box_.device(rank)));
    for (int part = 0; part < 2; ++part)
      x = nn::checkpointed(
          nn::Recompute::reentrant, [&](const Tensor& in) { return net->second(in); }, x);
    const Tensor one = net->last(x).sum();
    reducer.arm();
    one.backward();
    try {
      reducer.finish(true);
    } catch (const UsageError&) {
      ++refused;
    }
  });
  EXPECT_EQ(refused, kRanks);
}

TEST_F(ReducerTest, AnotherHookIsStillCalled) {
  std::atomic<int> calls = 0;
  struct Count final : torch::autograd::PostAccumulateGradHook {
    explicit Count(std::atomic<int>& of) : calls(of) {}
    void operator()(const Tensor&) override { ++calls; }
    std::atomic<int>& calls;
  };
  const Tensor& weight = net_[0]->first->weight;
  reducers_.clear();
  torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<Count>(calls));
  {
    const Reducer one(net_[0]->parameters(), Group(), kBucket);
    const Reducer two(net_[0]->parameters(), Group(), kBucket);
    loss(0, rows_[0]).backward();
    EXPECT_EQ(calls, 1);
  }
  loss(0, rows_[0]).backward();
  EXPECT_EQ(calls, 2);
  torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
}

TEST(Replicas, HaveTheValuesOfTheFirst) {
  const sim::Simulation box = sim::simulate("2x1GiB", {.mode = sim::Mode::compute});
  Replicas<Net> net({box.device(0), box.device(1)}, [] { return Net(); });
  ASSERT_EQ(net.size(), 2U);
  EXPECT_EQ(net[1]->first->weight.device(), box.device(1));
  EXPECT_TRUE(net[1]->first->weight.cpu().equal(net->first->weight.cpu()));
}

TEST(Replicas, ADeviceIsTakenOnce) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  EXPECT_THROW(Replicas<Net>({box.device(0), box.device(0)}, [] { return Net(); }), UsageError);
}

}  // namespace
}  // namespace headroom::parallel
