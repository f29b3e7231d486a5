// Profiles everything that runs while it lives, on every device of this process:
//
//   Profiler profiler;
//   step();
//   const Profile profile = profiler.end();
//   say(table(profile, {.group_by = GroupBy::shape}));
//
// On the CPU and on CUDA it starts PyTorch's own profiler (kineto) and reads its events. In a
// process with simulated cards, the cards report their allocations, and device time is the cost
// model's (forecast/operator_time.h). Recording costs some microseconds a call, and keeps each call
// in memory; profile a few steps, not an epoch.
//
// Modules: on simulated cards as in a dry run, from the parameters' names (dryrun/dry_run.h). On
// the CPU and on CUDA a ModuleRange says which module runs, and an operator of the backward pass
// belongs to the module that recorded it. Without either, all calls belong to module "".
//
// Threads: end it on the thread that made it. The work of that thread is profiled, and that of the
// autograd threads that it starts. An exception that destroys the Profiler discards the profile.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "headroom/profile/profile.h"

namespace torch::autograd::profiler {
struct ProfilerResult;
}

namespace headroom::profile {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Where a Profiler gets its profile: PyTorch's profiler, or simulated cards. It records from its
// making to end(), or until it is destroyed.
class ProfileSource {
 public:
  virtual ~ProfileSource() = default;
  // The parameters and buffers of a model, "h.0.attn.weight".
  virtual void know(const NamedTensors& /*tensors*/) {}
  virtual void begin_step() {}
  // Stops and returns the profile. Called once, on the thread that started it.
  [[nodiscard]] virtual Profile end() = 0;
};

class Profiler {
 public:
  // Throws UsageError if a profiler runs on this thread already, PyTorch's included.
  explicit Profiler(const NamedTensors& tensors = {});
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  // A model that appeared meanwhile. No other thread may run operators.
  void know(const NamedTensors& tensors);
  // A new training step begins: operators before its forward pass belong to no module.
  void begin_step();
  // Stops and returns the profile. Throws UsageError if it has ended, or on another thread.
  [[nodiscard]] Profile end();

 private:
  std::unique_ptr<ProfileSource> source_;  // null once ended
  const std::thread::id thread_ = std::this_thread::get_id();
};

// The module that runs on this thread, for profiles of the CPU and CUDA. Scopes nest. Without a
// profiler it costs some nanoseconds.
class ModuleRange {
 public:
  explicit ModuleRange(const std::string& module);
  void end() { range_.end(); }  // before its own end

 private:
  const std::string name_;  // lives as long as the range
  at::RecordFunction range_;
};

// Ranges whose names begin so are a ModuleRange's.
inline constexpr std::string_view kModuleRange = "nn.Module: ";
// True for the operators by which record_function opens and closes ranges, and for questions that
// run no kernel. PyTorch's own table leaves them out, too.
[[nodiscard]] bool is_left_out(std::string_view name);

// Reads a result of PyTorch's own profiler, recorded with shapes and memory.
[[nodiscard]] Profile read_profile(const torch::autograd::profiler::ProfilerResult& result);

}  // namespace headroom::profile
