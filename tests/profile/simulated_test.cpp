// Profiler on simulated cards.
#include <gmock/gmock.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include "headroom/base/error.h"
#include "headroom/profile/profiler.h"
#include "tests/dryrun/counted_net.h"

namespace headroom::profile {
namespace {

using namespace headroom::literals;
using namespace headroom::dryrun;  // the net that can be counted by hand

ProfileRow row_of(const Profile& profile, const std::string& name,
                  GroupBy group = GroupBy::operation) {
  for (ProfileRow& row : rows(profile, {.row_limit = 0, .group_by = group}))
    if (row.name == name) return row;
  throw InternalError("no row " + name);
}

NamedTensors named(Net& net) {
  NamedTensors tensors;
  for (const auto& one : net->named_parameters()) tensors.emplace_back(one.key(), one.value());
  return tensors;
}

// In C++ the backward pass of a card runs on a thread of autograd's.
TEST(ProfilerOnACard, CountsEveryByteOfBothPassesOnce) {
  OnACard it;
  const auto requested = [&] { return it.box.card(0).statistics().requested_bytes.all.allocated; };
  const std::int64_t before = requested();
  Profiler profiler(named(it.net));
  loss_of(*it.net, it.batch).backward();
  const Profile profile = profiler.end();
  EXPECT_EQ(row_of(profile, "", GroupBy::module).total_bytes.count, requested() - before);
  // Forward: the result. Backward: gradients of the result before relu, of weight and bias.
  EXPECT_EQ(row_of(profile, "first", GroupBy::module).self_bytes, 16_MiB + 4_KiB);
  EXPECT_TRUE(profile.simulated_time);
}

TEST(ProfilerOnACard, HidesNothingFromADryRunAroundIt) {
  const auto alone = [] {
    OnACard it;
    torch::optim::SGD optimizer(it.net->parameters(), 0.1);
    return it.run(optimizer);
  }();
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  Subject subject = subject_of(*it.net, it.batch, loss_of, optimizer);
  subject.step = [step = subject.step] {
    Profiler profiler;
    step();
    EXPECT_GT(profiler.end().calls.size(), 10U);
  };
  const trace::Report profiled = dry_run(it.box.card(0), subject);
  EXPECT_EQ(profiled.peak, alone.peak);
  EXPECT_EQ(profiled.trace->events.size(), alone.trace->events.size());
}

TEST(ProfilerOnACard, IsOffAfterAnOutOfMemoryInside) {
  OnACard it("1x64MiB");
  const auto fails = [&] {
    const Profiler profiler;
    (void)torch::empty({64 << 20}, it.box.device(0));
  };
  EXPECT_THROW(fails(), c10::OutOfMemoryError);
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
  EXPECT_EQ(it.box.card(0).observer(), nullptr);
  Profiler another;
  (void)torch::relu(it.batch);
  EXPECT_EQ(row_of(another.end(), "aten::relu").self_bytes, 4_MiB);
}

TEST(ProfilerOnACard, RefusesASecondProfiler) {
  const OnACard it;
  const Profiler profiler;
  EXPECT_THROW(const Profiler second, UsageError);
}

TEST(ProfilerOnACard, TakesTimeForWorkAndNoneForViews) {
  OnACard it;
  Profiler profiler;
  (void)torch::mm(it.batch, it.batch.t());
  const Profile profile = profiler.end();
  EXPECT_EQ(row_of(profile, "aten::t").device_s.value(), 0);
  // 2 x 1024^3 operations, at no more than the rate of any card: 1e14 a second.
  EXPECT_GT(row_of(profile, "aten::mm").device_s.value(), 2e-5);
  EXPECT_EQ(row_of(profile, "aten::mm").shapes, "[[1024, 1024], [1024, 1024]]");
}

}  // namespace
}  // namespace headroom::profile
