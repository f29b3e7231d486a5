// The code of docs/guides/gpu-memory-in-your-program.md and profile.md, as it stands there.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "headroom/libtorch/modules.h"
#include "headroom/libtorch/on.h"
#include "headroom/memory/clear.h"
#include "headroom/memory/history.h"
#include "headroom/memory/memory_statistics.h"
#include "headroom/memory/scope.h"
#include "headroom/memory/summary.h"
#include "headroom/profile/profiler.h"
#include "headroom/sim/simulate.h"

namespace headroom {
namespace {

TEST(GuideToMemory, LooksAtASteps) {
  std::ostringstream out;
  const sim::Simulation box = sim::simulate("1x8GiB");
  const torch::Device device = box.device(0);
  using namespace memory;
  auto net = libtorch::on(device, [] { return torch::nn::Linear(4096, 4096); });
  torch::Tensor kept;
  {
    const GpuMemoryScope forward("forward", device, [&](std::string_view line) { out << line; });
    kept = net->forward(torch::ones({1024, 4096}, device));
  }
  const std::string line = log_gpu_memory_stats("after one step", device);
  out << '\n' << line << '\n' << short_memory_summary(device);
  EXPECT_EQ(out.str(),
            "forward: sim:0 allocated 32.0 MiB, kept 32.0 MiB, peak 96.0 MiB (32.0 MiB above the "
            "start)\n"
            "after one step: sim:0 allocated 96.0 MiB, reserved 98.0 MiB, peak 96.0 MiB\n"
            "GPU Memory Summary (sim:0):\n"
            "  Allocated: 0.09 GiB\n"
            "  Reserved: 0.10 GiB\n"
            "  Max Allocated: 0.09 GiB\n");
}

TEST(GuideToMemory, FindsLingeringTensors) {
  std::ostringstream out;
  const sim::Simulation box = sim::simulate("1x8GiB");
  const torch::Device device = box.device(0);
  using namespace memory;
  std::vector<torch::Tensor> losses;  // the mistake: tensors where numbers were meant
  trace::Recorder recorder;
  {
    const History history = record_history(device, recorder);
    for (std::uint32_t epoch = 1; epoch <= 2; ++epoch) {
      recorder.mark("epoch " + std::to_string(epoch));
      const trace::ModuleScope module(recorder, recorder.name("head"));
      losses.push_back(torch::ones({1 << 20}, device).mul(2));
    }
    for (const LiveAllocation& one : clear_gpu_memory(true).lingering)
      out << to_string(one) << '\n';
  }
  EXPECT_EQ(out.str(),
            "sim:0 4.0 MiB since module head, aten::mul.Tensor, step 0, after 'epoch 1'\n"
            "sim:0 4.0 MiB since module head, aten::mul.Tensor, step 0, after 'epoch 2'\n");
}

TEST(GuideToMemory, MovesAModuleAndItsOptimizer) {
  const sim::Simulation box = sim::simulate("2x8GiB", {.mode = sim::Mode::compute});
  torch::nn::Linear net(4, 4);
  torch::optim::AdamW optimizer(net->parameters());
  libtorch::move(*net, optimizer, box.device(1));
  const auto copy = libtorch::clone(*net, box.device(0));
  EXPECT_EQ(net->weight.device(), box.device(1));
  EXPECT_EQ(copy->weight.device(), box.device(0));
}

TEST(GuideToProfiles, ProfilesAStepByModule) {
  std::ostringstream out;
  const sim::Simulation box = sim::simulate("RTX 4090");
  using namespace profile;
  auto net = libtorch::on(box.device(0), [] {
    return torch::nn::Sequential(torch::nn::Linear(1024, 4096), torch::nn::GELU(),
                                 torch::nn::Linear(4096, 1024));
  });
  const torch::Tensor batch = torch::ones({64, 1024}, box.device(0));
  const auto step = [&] { net->forward(batch).mean().backward(); };
  NamedTensors parameters;
  for (const auto& one : net->named_parameters()) parameters.emplace_back(one.key(), one.value());
  Profiler profiler(parameters);
  step();
  const Profile profile = profiler.end();
  out << table(profile, {.sort_by = "self_bytes", .group_by = GroupBy::module});
  EXPECT_THAT(out.str(), ::testing::HasSubstr("\n2 "));
}

}  // namespace
}  // namespace headroom
