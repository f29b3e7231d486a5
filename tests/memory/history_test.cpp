#include "headroom/memory/history.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/base/error.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/count_cpu.h"
#include "headroom/memory/live.h"
#include "headroom/sim/simulate.h"
#include "headroom/trace/memory_reader.h"
#include "tests/memory/floats.h"

namespace headroom::memory {
namespace {

using namespace literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

std::vector<std::string> operators_of_allocations(const trace::Recorder& recorder) {
  std::vector<std::string> names;
  const auto reader = trace::read_memory(recorder);
  for (trace::Event event; reader->next(event);)
    if (event.kind == trace::Kind::alloc) names.emplace_back(reader->names().text(event.operation));
  return names;
}

// ---- One suite for every kind of device ----

class HistoryOf : public ::testing::TestWithParam<const char*> {
 protected:
  HistoryOf() {
    if (std::string_view(GetParam()) == "sim")
      box_ = sim::simulate("1x1GiB", {.mode = sim::Mode::compute});
    if (std::string_view(GetParam()) == "cpu") counting_.emplace();
  }
  [[nodiscard]] torch::Device device() const { return torch::Device(GetParam()); }
  trace::Recorder recorder_;

 private:
  std::optional<sim::Simulation> box_;
  std::optional<CountCpuMemory> counting_;
};
INSTANTIATE_TEST_SUITE_P(Devices, HistoryOf, ::testing::Values("sim", "cpu"));

TEST_P(HistoryOf, NamesTheOperatorThatAllocated) {
  const Tensor one = torch::ones({64, 64}, device());
  const History history = record_history(device(), recorder_);
  const Tensor product = one.mm(one);
  const Tensor sum = product + one;
  const Tensor half = sum.to(torch::kHalf);
  EXPECT_THAT(operators_of_allocations(recorder_),
              ElementsAre("aten::mm", "aten::add.Tensor", "aten::_to_copy"));
}

TEST_P(HistoryOf, TakesModuleStepAndPhaseFromTheRecorder) {
  const History history = record_history(device(), recorder_);
  recorder_.set_step(3);
  {
    const trace::PhaseScope phase(recorder_, trace::Phase::forward);
    const trace::ModuleScope module(recorder_, recorder_.name("h.0.mlp"));
    floats(4, device());
  }
  const trace::Event& event = recorder_.event(recorder_.recorded() - 1);
  EXPECT_EQ(recorder_.names().text(event.module), "h.0.mlp");
  EXPECT_EQ(event.phase, trace::Phase::forward);
  EXPECT_EQ(event.step, 3U);
}

TEST_P(HistoryOf, HasAnEndForEveryBeginning) {
  const History history = record_history(device(), recorder_);
  torch::nn::Linear net(8, 8);
  for (int i = 0; i < 3; ++i) torch::ones({8, 8}, device()).mul(2).exp().sum();
  int begun = 0, ended = 0;
  const auto reader = trace::read_memory(recorder_);
  for (trace::Event event; reader->next(event);) {
    begun += event.kind == trace::Kind::alloc;
    ended += event.kind == trace::Kind::free_completed;
  }
  EXPECT_GT(begun, 9);
  EXPECT_LE(ended, begun);
  EXPECT_EQ(static_cast<std::size_t>(begun - ended), live_allocations(device()).size());
}

TEST_P(HistoryOf, EndsWithItsObject) {
  { const History history = record_history(device(), recorder_); }
  floats(4, device());
  EXPECT_EQ(recorder_.recorded(), 0U);
  EXPECT_EQ(trace::here.operation, "");
}

TEST_P(HistoryOf, IsOneAtATime) {
  const History history = record_history(device(), recorder_);
  trace::Recorder second;
  EXPECT_THROW((void)record_history(device(), second), UsageError);
}

TEST_P(HistoryOf, ListsLiveAllocationsAndTheirAge) {
  const History history = record_history(device(), recorder_);
  recorder_.mark("epoch 1");
  const Tensor first = floats(8, device());
  recorder_.mark("epoch 2");
  recorder_.set_step(7);
  Tensor lingering;
  {
    const trace::ModuleScope module(recorder_, recorder_.name("h.0.attn"));
    lingering = floats(16, device());
    floats(32, device());
  }
  const std::vector<LiveAllocation> live = live_allocations(device());
  ASSERT_EQ(live.size(), 2U);
  EXPECT_EQ(live[0].bytes, 16_MiB);
  EXPECT_EQ(live[0].module, "h.0.attn");
  EXPECT_EQ(live[0].mark, "epoch 2");
  EXPECT_EQ(live[0].step, 7U);
  EXPECT_EQ(live[1].mark, "epoch 1");
  EXPECT_THAT(to_string(live[0]), HasSubstr("16.0 MiB since module h.0.attn"));
}

TEST_P(HistoryOf, KnowsOnlyTheSizeOfEarlierAllocations) {
  const Tensor before = floats(8, device());
  const History history = record_history(device(), recorder_);
  const std::vector<LiveAllocation> live = live_allocations(device());
  ASSERT_EQ(live.size(), 1U);
  EXPECT_FALSE(live[0].is_recorded);
  EXPECT_EQ(live[0].requested, 8_MiB);
}

// ---- What is not the same for all ----

TEST(History, MayEndAfterItsCard) {
  trace::Recorder recorder;
  std::optional<History> history;
  {
    const sim::Simulation box = sim::simulate("1x1GiB");
    history.emplace(box.device(0), recorder);
  }
  EXPECT_NO_THROW(history.reset());
}

TEST(History, OfTheCpuNeedsItsMemoryCounted) {
  trace::Recorder recorder;
  EXPECT_THROW((void)record_history(torch::kCPU, recorder), UsageError);
}

TEST(CurrentOperator, IsTheInnermostThatIsNoMereFactory) {
  const CountCpuMemory counting;
  trace::Recorder recorder;
  const Tensor weight = torch::ones({4, 4}), input = torch::ones({2, 4});
  const History history = record_history(torch::kCPU, recorder);
  const Tensor result = torch::linear(input, weight);
  EXPECT_THAT(operators_of_allocations(recorder), ElementsAre("aten::mm"));
}

TEST(ClearGpuMemory, GivesTheCachesOfAllCardsBack) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  const Tensor kept = floats(64, box.device(0));
  floats(32, box.device(0));
  floats(128, box.device(1));
  const Cleared cleared = clear_gpu_memory();
  EXPECT_EQ(cleared.given_back(), 160_MiB);
  ASSERT_EQ(cleared.devices.size(), 2U);
  EXPECT_EQ(cleared.devices[0].reserved_before, 96_MiB);
  EXPECT_EQ(cleared.devices[0].reserved_after, 64_MiB);
  EXPECT_EQ(cleared.devices[0].allocated, 64_MiB);
  EXPECT_TRUE(cleared.lingering.empty());
}

TEST(ClearGpuMemory, IsNothingWithoutCards) {
  const Cleared cleared = clear_gpu_memory(true);
  EXPECT_TRUE(cleared.devices.empty());
  EXPECT_EQ(cleared.given_back(), 0_B);
}

TEST(ClearGpuMemory, ForceFindsLingeringTensorsOfAllCards) {
  const sim::Simulation box = sim::simulate("2x1GiB");
  trace::Recorder recorder;
  const History history = record_history(box.device(1), recorder);
  const Tensor small = floats(8, box.device(0)), big = floats(64, box.device(1));
  const Cleared cleared = clear_gpu_memory(true);
  ASSERT_EQ(cleared.lingering.size(), 2U);
  EXPECT_EQ(cleared.lingering[0].device.str(), "sim:1");
  EXPECT_EQ(cleared.lingering[0].bytes, 64_MiB);
  EXPECT_TRUE(cleared.lingering[0].is_recorded);
  EXPECT_EQ(cleared.lingering[1].device.str(), "sim:0");
}

TEST(ClearGpuMemory, ForceDropsAutocastsCache) {
  const sim::Simulation box = sim::simulate("1x1GiB");
  const auto type = box.device(0).type();
  const Tensor weight = torch::ones({1024, 1024}, torch::device(box.device(0)).requires_grad(true));
  const Tensor input = torch::ones({4, 1024}, box.device(0));
  at::autocast::set_autocast_enabled(type, true);
  at::autocast::increment_nesting();
  input.mm(weight);
  const Bytes with_cast = Bytes{box.card(0).statistics().allocated_bytes.all.current};
  const Cleared cleared = clear_gpu_memory(true);
  at::autocast::decrement_nesting();
  at::autocast::set_autocast_enabled(type, false);
  EXPECT_EQ(with_cast - cleared.devices[0].allocated, 2_MiB);
}

}  // namespace
}  // namespace headroom::memory
