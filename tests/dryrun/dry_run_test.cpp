#include "headroom/dryrun/dry_run.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "headroom/allocator/caching_allocator.h"
#include "headroom/base/error.h"
#include "headroom/gpu/profile.h"
#include "headroom/libtorch/on.h"
#include "headroom/optim/optimizer.h"
#include "headroom/trace/reader.h"
#include "tests/dryrun/counted_net.h"
#include "tests/sim/fixtures/fresh_process.h"

namespace headroom::dryrun {
namespace {

using namespace headroom::literals;
using trace::Category;
using trace::Phase;

TEST(DryRun, FindsThePeakOfACountedNet) {
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  const trace::Report report = it.run(optimizer);
  // 4 MiB each: two weights, the batch, the first output that relu keeps, relu's, the second
  // output; in backward the expanded gradient takes none. Two biases of 4 KiB.
  EXPECT_EQ(report.at_peak.parameters, 8_MiB + 8_KiB);
  EXPECT_EQ(report.at_peak.inputs, 4_MiB);
  EXPECT_EQ(report.at_peak.optimizer, Bytes{0});
  EXPECT_EQ(report.at_peak.total(), report.peak.allocated);
  EXPECT_EQ(report.peak.allocated.count, it.box.card(0).statistics().allocated_bytes.all.peak);
}

TEST(DryRun, CountsAdamsStatesFromTheSecondStepOn) {
  OnACard it;
  torch::optim::AdamW optimizer(it.net->parameters());
  const trace::Report report = it.run(optimizer);
  ASSERT_EQ(report.per_step.size(), 2U);
  EXPECT_EQ(report.per_step[1].after.value(), report.per_step[0].after.value());
  EXPECT_EQ(report.at_peak.optimizer, 2 * (8_MiB + 8_KiB));
  EXPECT_EQ(report.peak.step, 2U);
}

// Once the state of an optimizer that had stepped before was counted among the inputs.
TEST(DryRun, CountsStatesFromStepsBeforeAsTheOptimizers) {
  const auto warm = [](OnACard& it, auto& optimizer) {
    it.net->forward(it.batch).sum().backward();
    optimizer.step();
    return it.run(optimizer);
  };
  OnACard it;
  torch::optim::AdamW adam(it.net->parameters());
  const trace::Report report = warm(it, adam);
  EXPECT_EQ(report.at_peak.optimizer, 2 * (8_MiB + 8_KiB));
  EXPECT_EQ(report.at_peak.inputs, 4_MiB);
  torch::optim::Adagrad adagrad(it.net->parameters());  // its constructor makes the state
  EXPECT_EQ(it.run(adagrad).at_peak.optimizer, 8_MiB + 8_KiB);
  const auto ours = optim::make_sgd(it.net->parameters(), {.momentum = 0.9});
  EXPECT_EQ(warm(it, *ours).at_peak.optimizer, 8_MiB + 8_KiB);
}

TEST(DryRun, SaysWhereItDoesNotFit) {
  OnACard it("1x26MiB");
  torch::optim::AdamW optimizer(it.net->parameters());
  const trace::Report report = it.run(optimizer);
  ASSERT_FALSE(report.fits());
  EXPECT_EQ(report.out_of_memory->capacity, 26_MiB);
}

// A step of a net made on a card that dry_run gives.
Subject made_on(c10::Device device) {
  const Net net = libtorch::on(device, [] { return Net(); });
  const auto optimizer = std::make_shared<torch::optim::AdamW>(net->parameters());
  const auto batch = torch::empty({1024, 1024}, device);
  return {.step = [=] {
    optimizer->zero_grad();
    Net(net)->forward(batch).sum().backward();
    optimizer->step();
  }};
}

TEST(DryRun, MakesACardOfItsOwnAndSaysWhatWouldBeNeeded) {
  const trace::Report fits = dry_run("24GiB", made_on);
  ASSERT_TRUE(fits.fits());
  EXPECT_EQ(fits.at_peak.parameters, 8_MiB + 8_KiB);
  EXPECT_EQ(fits.at_peak.inputs, 4_MiB);
  const trace::Report too_small = dry_run("30MiB", made_on);
  EXPECT_FALSE(too_small.fits());
  EXPECT_EQ(too_small.peak.allocated, fits.peak.allocated);
}

// LibTorch would take `sim` for the process's accelerator, so it must not be registered there.
TEST(DryRun, RunsInAChildOfAProcessThatHasUsedCuda) {
  const auto beside_cuda = [] {
    struct UsedCuda final : at::CUDAHooksInterface {
      bool hasCUDA() const override { return true; }
      c10::DeviceIndex deviceCount() const override { return 1; }
      bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    };
    at::CUDAHooksRegistry()->Register(
        "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
          return std::make_unique<UsedCuda>();
        });
    const trace::Report report = dry_run("24GiB", made_on);
    return std::to_string(report.at_peak.parameters.count) +
           (at::isPrivateUse1HooksRegistered() ? " registered" : " clean");
  };
  EXPECT_IN_A_NEW_PROCESS(beside_cuda, "8396800 clean$");
}

TEST(DryRun, ReplaysToTheSamePeak) {
  OnACard it;
  torch::optim::AdamW optimizer(it.net->parameters());
  const trace::Report report = it.run(optimizer);
  allocator::CachingAllocator card;
  std::map<std::uint64_t, allocator::BlockId> blocks;
  for (const trace::Event& event : report.trace->events) {
    if (event.kind == trace::Kind::alloc)
      blocks[event.address] = card.allocate(event.bytes, event.stream);
    if (event.kind == trace::Kind::free_requested) card.free(blocks[event.address]);
  }
  EXPECT_EQ(card.statistics().requested_bytes.all.peak, report.peak.requested.count);
}

TEST(DryRun, ComesBackFromJsonAsItWas) {
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  const trace::Report report = it.run(optimizer);
  const trace::Report again = trace::report_from_json(to_json(report));
  EXPECT_EQ(to_json(again), to_json(report));
  EXPECT_EQ(again.at_peak, report.at_peak);
}

TEST(DryRun, TellsCublasWorkspacesFromTensors) {
  OnACard it("1xH100 80GB");
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  const trace::Report report = it.run(optimizer);
  // Of the thread of forward and of that of backward; and of cuBLASLt, 1 MiB each.
  const Bytes cublas = *gpu::find_profile("hopper")->cublas_workspace;
  EXPECT_GE(report.at_peak.workspace, 2 * cublas);
  EXPECT_LE(report.at_peak.workspace, 2 * (cublas + 1_MiB));
  EXPECT_EQ(report.at_peak.total(), report.peak.allocated);
  // Active leaves them out; the losses of four bytes are rounded in it.
  const Bytes left_out = report.peak.requested - report.peak.active;
  EXPECT_LE(left_out, report.at_peak.workspace);
  EXPECT_GE(left_out, report.at_peak.workspace - 4_KiB);
}

// A step on two cards, of which the second is small.
trace::Report run_beside(const sim::Simulation& box, const std::function<void()>& on_the_other) {
  const torch::Tensor weight = torch::ones({256}, box.device(0)).requires_grad_();
  return dry_run(box.card(0), {.step = [&] {
                   on_the_other();
                   weight.sum().backward();
                 }});
}

TEST(DryRun, LeavesTheRefusalOfAnotherCardToTheStep) {
  const sim::Simulation box = sim::simulate("1x24GiB,1x64MiB");
  const auto too_much = [&] { (void)torch::empty({64 << 20}, box.device(1)); };
  EXPECT_THROW((void)run_beside(box, too_much), c10::OutOfMemoryError);
  const auto handled = [&] { EXPECT_THROW(too_much(), c10::OutOfMemoryError); };
  EXPECT_TRUE(run_beside(box, handled).fits());
}

TEST(DryRun, TellsAnOldRefusalFromOneOfItsOwn) {
  const sim::Simulation box = sim::simulate("1x1GiB,1x64MiB");
  EXPECT_THROW((void)torch::empty({1 << 30}, box.device(0)), c10::OutOfMemoryError);
  const auto too_much = [&] { (void)torch::empty({64 << 20}, box.device(1)); };
  EXPECT_THROW((void)run_beside(box, too_much), c10::OutOfMemoryError);
}

// Once a function that forgot its device was answered with "fits", at a peak of 0 B.
TEST(DryRun, RefusesAStepThatUsesNothingOfItsCardAndNamesWhatItMet) {
  const auto on_the_cpu = [](c10::Device) {
    torch::nn::Linear net(64, 32);
    const torch::Tensor x = torch::zeros({8, 64});
    return Subject{.step = [net, x]() mutable { net->forward(x).mean().backward(); }};
  };
  const auto named = [&](c10::Device device) {
    Subject subject = on_the_cpu(device);
    torch::nn::Linear net(128, 16);
    subject.parameters = {{"head.weight", net->weight}};
    subject.step = [net]() mutable { net->forward(torch::zeros({8, 128})).mean().backward(); };
    return subject;
  };
  EXPECT_THAT([&] { (void)dry_run("RTX 4090", on_the_cpu); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("[32, 64] on cpu"), testing::HasSubstr("[8, 64] on cpu"))));
  EXPECT_THAT([&] { (void)dry_run("RTX 4090", named); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("none, but head.weight [16, 128] on cpu")));
  EXPECT_THAT(
      [&] { (void)dry_run("RTX 4090", [](c10::Device) { return Subject{.step = [] {}}; }); },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("no operator")));
}

TEST(DryRun, RefusesAModelOnTheCpuByTheNameOfItsFirstParameter) {
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  EXPECT_THAT(
      [&] {
        (void)dry_run(*net, torch::zeros({2, 1024}), loss_of, optimizer);
      },
      testing::ThrowsMessage<UsageError>(testing::HasSubstr("first.weight on cpu")));
}

TEST(DryRun, RefusesASpecOfMoreThanACard) {
  const auto make = [](c10::Device) { return Subject{.step = [] {}}; };
  EXPECT_THROW((void)dry_run("2x24GiB", make), UsageError);
  EXPECT_THROW((void)dry_run("sim:1x24GiB@dry-run-test", make), UsageError);
  // Once in the name of `simulate`, which the caller had not called.
  for (const char* spec : {"A100", "24", "RTX 9999", "65x24GiB"})
    EXPECT_THAT([&] { (void)dry_run(spec, make); },
                testing::ThrowsMessage<UsageError>(testing::StartsWith("[sim]")));
}

struct UnusedGpu final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
};

// As CUDA's in a fork.
struct GuardInAFork final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  void setDevice(c10::Device) const override { TORCH_CHECK(false, "CUDA error"); }
};

// Once a process that had asked for a dry run could not train on its GPU: LibTorch took `sim` for
// the accelerator from then on, and CUDA's backward passes failed.
TEST(DryRun, LeavesAProcessWithAGpuAsItIs) {
  const auto predict = [] {
    at::CUDAHooksRegistry()->Register(
        "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
          return std::make_unique<UnusedGpu>();
        });
    const GuardInAFork guard;
    c10::impl::device_guard_impl_registry[static_cast<int>(c10::DeviceType::CUDA)] = &guard;
    const trace::Report report = dry_run("1GiB", [](c10::Device device) -> Subject {
      const auto weight = torch::empty({1024}, torch::device(device).requires_grad(true));
      return {.step = [=] { weight.sum().backward(); }};
    });
    return std::to_string(report.peak.requested.count) +
           " bytes, sim known: " + std::to_string(at::isPrivateUse1HooksRegistered());
  };
  EXPECT_IN_A_NEW_PROCESS(predict, "^8200 bytes, sim known: 0$");
}

TEST(DryRun, WritesATraceThatReplays) {
  OnACard it;
  torch::optim::SGD optimizer(it.net->parameters(), 0.1);
  const trace::Report report = it.run(optimizer);
  const std::string path = testing::TempDir() + "dry-run-" + std::to_string(::getpid()) + ".trace";
  trace::write_trace(report, path);
  const auto trace = trace::open_trace(path);
  std::size_t events = 0;
  std::set<std::string> modules;
  for (trace::Event event; trace->next(event); ++events)
    modules.emplace(trace->names().text(event.module));
  EXPECT_EQ(events, report.trace->events.size());
  EXPECT_TRUE(modules.contains("first") && modules.contains("second"));
  std::filesystem::remove(path);
  EXPECT_THROW(trace::write_trace(report, "/nowhere/dry-run.trace"), WriteError);
}

TEST(DryRun, RefusesACardThatComputes) {
  OnACard it;
  it.box.card(0).set_mode(sim::Mode::compute);
  EXPECT_THROW((void)dry_run(it.box.card(0), {.step = [] {}}), UsageError);
}

}  // namespace
}  // namespace headroom::dryrun
