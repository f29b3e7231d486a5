// The checker of streams sees what a step on several cards could get wrong: each of ten faults is
// planted into right code, by leaving out one wait.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "headroom/libtorch/operator_refusal.h"
#include "headroom/libtorch/streams.h"
#include "headroom/parallel/group.h"
#include "headroom/parallel/in_process.h"
#include "headroom/parallel/rank_threads.h"
#include "headroom/sim/simulate.h"

namespace headroom::parallel {
namespace {

using torch::Tensor;

class World {
 public:
  explicit World(bool is_planted) : is_planted_(is_planted) {}

  // The wait that is left out.
  void wait_for(const c10::Stream& earlier, const c10::Stream& later) const {
    if (!is_planted_) libtorch::order(earlier, later);
  }
  template <typename Work>
  static void on(const c10::Stream& stream, const Work& work) {
    const c10::StreamGuard guard(stream);
    work();
  }
  [[nodiscard]] Tensor numbers(int card = 0) const {
    return torch::ones({1000}, box_.device(card));
  }
  [[nodiscard]] c10::Stream main(int card = 0) const {
    return libtorch::current_stream(box_.device(card));
  }
  void hand_over(const Tensor& from, const Tensor& into) const {
    const auto work = groups_[0].send(from, 1);
    groups_[1].receive(into, 0);
    work->wait();
  }
  // On both ranks' threads at once.
  template <typename Work>
  void together(const Work& work) {
    threads_.run([&](int rank) { work(rank, groups_[static_cast<std::size_t>(rank)]); });
  }

 private:
  static c10::Stream other(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }

  const bool is_planted_;
  const sim::Simulation box_ =
      sim::simulate("2x1GiB", {.mode = sim::Mode::compute, .check_streams = true});
  const std::vector<Group> groups_ = [] {
    std::vector<Group> all;
    for (const auto& backend : in_process(2)) all.emplace_back(backend);
    return all;
  }();
  RankThreads threads_{{box_.device(0), box_.device(1)}};

 public:
  const std::vector<c10::Stream> side{other(box_.device(0)), other(box_.device(1))};
};

void handed_over_before_it_is_computed(World& world) {
  const Tensor x = world.numbers(), y = world.numbers(1);
  libtorch::order(world.main(), world.side[0]);
  World::on(world.side[0], [&] { x.add_(1); });
  world.wait_for(world.side[0], world.main());
  world.hand_over(x, y);
}

void written_again_before_it_is_taken(World& world) {
  const Tensor x = world.numbers(), y = world.numbers(1);
  world.hand_over(x, y);
  world.wait_for(world.main(), world.side[0]);
  World::on(world.side[0], [&] { x.add_(1); });
}

void freed_before_it_is_taken(World& world) {
  Tensor x;
  const Tensor y = world.numbers(1);
  World::on(world.side[0], [&] { x = world.numbers(); });
  libtorch::order(world.side[0], world.main());
  world.hand_over(x, y);
  x.reset();
  world.wait_for(world.main(), world.side[0]);
  World::on(world.side[0], [&] { static_cast<void>(world.numbers()); });  // in the same memory
}

void reduced_before_the_gradient_is_there(World& world) {
  const Tensor gradient = world.numbers(), bucket = world.numbers();
  libtorch::order(world.main(), world.side[0]);
  gradient.add_(1);
  world.wait_for(world.main(), world.side[0]);
  World::on(world.side[0], [&] { bucket.copy_(gradient); });
}

void a_bucket_filled_again_during_its_sum(World& world) {
  const Tensor buckets[] = {world.numbers(0), world.numbers(1)};
  world.together([&](int rank, const Group& group) {
    const auto& side = world.side[static_cast<std::size_t>(rank)];
    libtorch::order(world.main(rank), side);
    World::on(side, [&] { group.sum(buckets[rank]); });
  });
  world.wait_for(world.side[0], world.main());
  buckets[0].zero_();
}

void an_update_before_the_sum(World& world) {
  const Tensor gradients[] = {world.numbers(0), world.numbers(1)}, parameter = world.numbers();
  world.together([&](int rank, const Group& group) {
    const auto& side = world.side[static_cast<std::size_t>(rank)];
    libtorch::order(world.main(rank), side);
    World::on(side, [&] { group.sum(gradients[rank]); });
  });
  world.wait_for(world.side[0], world.main());
  parameter.sub_(gradients[0]);
}

void summed_before_it_is_computed(World& world) {
  const Tensor numbers[] = {world.numbers(0), world.numbers(1)};
  libtorch::order(world.main(), world.side[0]);
  World::on(world.side[0], [&] { numbers[0].add_(1); });
  world.wait_for(world.side[0], world.main());
  world.together([&](int rank, const Group& group) { group.sum(numbers[rank]); });
}

void broadcast_before_it_is_computed(World& world) {
  const Tensor numbers[] = {world.numbers(0), world.numbers(1)};
  libtorch::order(world.main(), world.side[0]);
  World::on(world.side[0], [&] { numbers[0].add_(1); });
  world.wait_for(world.side[0], world.main());
  world.together([&](int rank, const Group& group) { group.broadcast(numbers[rank], 0); });
}

void written_by_two_ranks(World& world) {
  const Tensor x = world.numbers(), theirs = world.numbers(1);
  libtorch::order(world.main(), world.side[0]);
  World::on(world.side[0], [&] { x.add_(1); });
  world.wait_for(world.side[0], world.main());
  x.copy_(theirs);
}

void put_back_while_the_attempt_still_reads(World& world) {
  const Tensor x = world.numbers(), before = world.numbers();
  libtorch::order(world.main(), world.side[0]);
  World::on(world.side[0], [&] { static_cast<void>(x.mul(2)); });
  world.wait_for(world.side[0], world.main());
  x.copy_(before);
}

struct Fault {
  const char* name;
  void (*program)(World&);
};
#define FAULT(name) \
  Fault {           \
#name, name     \
  }
constexpr Fault kFaults[] = {FAULT(handed_over_before_it_is_computed),
                             FAULT(written_again_before_it_is_taken),
                             FAULT(freed_before_it_is_taken),
                             FAULT(reduced_before_the_gradient_is_there),
                             FAULT(a_bucket_filled_again_during_its_sum),
                             FAULT(an_update_before_the_sum),
                             FAULT(summed_before_it_is_computed),
                             FAULT(broadcast_before_it_is_computed),
                             FAULT(written_by_two_ranks),
                             FAULT(put_back_while_the_attempt_still_reads)};
#undef FAULT

class PlantedFault : public testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, IsFoundAndTheRightProgramIsNot) {
  {
    World world(/*is_planted=*/false);
    EXPECT_NO_THROW(GetParam().program(world));
  }
  World world(/*is_planted=*/true);
  EXPECT_THROW(GetParam().program(world), libtorch::DeviceError);
}

INSTANTIATE_TEST_SUITE_P(Streams, PlantedFault, testing::ValuesIn(kFaults),
                         [](const auto& named) { return std::string(named.param.name); });

}  // namespace
}  // namespace headroom::parallel
