#include "headroom/libtorch/autograd_engine.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "headroom/base/error.h"
#include "headroom/libtorch/detail/saved_hooks.h"
#include "headroom/libtorch/versions.h"

namespace headroom::libtorch {
namespace {

using torch::autograd::Engine;

// Without this check LibTorch's engine fails an assertion about streams.
void check_accelerator(const torch::autograd::Node& root) {
  if (!at::isPrivateUse1HooksRegistered()) return;
  for (const auto& edge : root.next_edges())
    if (edge.is_valid() && edge.function->input_metadata(edge.input_nr).device().is_cuda())
      throw UnavailableError(expectation("backward", "a backward pass on simulated cards",
                                         "one on CUDA in a process that simulates cards: LibTorch "
                                         "allows one accelerator per process",
                                         "simulating in another process, or with sim::in_child"));
}

// LibTorch's engine, with its own device threads.
class OwnEngine final : public Engine {
 public:
  explicit OwnEngine(OwnEngine* retired) : before(retired) {}

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task, NodePointer root,
      torch::autograd::InputBuffer&& inputs) override {
    check_accelerator(*root);
    note(task);
    std::call_once(threads_, [this] {
      has_run_ = true;
      // LibTorch starts device threads only for the first engine of the process that runs.
      initialize_device_threads_pool();
      if (device_ready_queues_.empty()) start_device_threads();
    });
    return Engine::execute_with_graph_task(task, std::move(root), std::move(inputs));
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return detail::saved_variable_hooks();
  }

  [[nodiscard]] bool has_run() const { return has_run_; }

  // A thread holds the task while it runs one of its nodes, and the caller until the pass throws.
  void wait_for_failed_passes() {
    const auto one_runs = [this] {
      const std::lock_guard lock(passes_mutex_);
      return std::any_of(passes_.begin(), passes_.end(), [](const auto& pass) {
        const auto task = pass.lock();
        return task && task->has_error_.load();
      });
    };
    while (one_runs()) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  OwnEngine* const before;  // stays reachable, so that leak checkers do not report it

 private:
  void note(const std::shared_ptr<torch::autograd::GraphTask>& task) {
    const std::lock_guard lock(passes_mutex_);
    std::erase_if(passes_, [](const auto& pass) { return pass.expired(); });
    passes_.push_back(task);
  }

  std::once_flag threads_;
  std::atomic<bool> has_run_ = false;
  std::mutex passes_mutex_;
  std::vector<std::weak_ptr<torch::autograd::GraphTask>> passes_;  // that have begun
};

// Gives another engine threads for devices that it does not know. The engine finds a device's queue
// by the device index alone, whatever the device type.
class MoreThreads : public Engine {
 public:
  static void of(Engine& engine) {
    engine.initialize_device_threads_pool();
    auto& queues = engine.*(&MoreThreads::device_ready_queues_);
    auto& pool = engine.*(&MoreThreads::thread_pool_shared_);
    if (!pool) pool = std::make_shared<ThreadPoolShared>();
    for (std::size_t i = queues.size(); i < devices(); ++i) {
      const auto queue = std::make_shared<torch::autograd::ReadyQueue>();
      queues.push_back(queue);
      std::thread(&Engine::thread_init, &engine, static_cast<int>(i), queue, true).detach();
    }
  }

 private:
  static std::size_t devices() {
    c10::DeviceIndex most = 0;
    for (const auto& guard : c10::impl::device_guard_impl_registry)
      if (const auto* known = guard.load()) most = std::max(most, known->deviceCount());
    return static_cast<std::size_t>(most);
  }
};

// Never deleted, like LibTorch's own engine: device threads may still run when the process ends.
std::atomic<OwnEngine*> current = nullptr;

Engine& instance() {
  static std::once_flag first;
  std::call_once(first, [] { current = new OwnEngine(nullptr); });
  return *current;
}

// LibTorch does not show which function gives the installed engine, but the engine itself stays.
std::atomic<Engine*> other_engine = nullptr;

}  // namespace

bool install_engine() {
  if (&Engine::get_default_engine() == &Engine::get_base_engine())
    torch::autograd::set_default_engine_stub(&instance);
  return &Engine::get_default_engine() == &instance();
}

EngineMeanwhile::EngineMeanwhile() {
  Engine& installed = Engine::get_default_engine();
  if (&installed != &instance()) other_engine = &installed;
  torch::autograd::set_default_engine_stub(&instance);
}

EngineMeanwhile::~EngineMeanwhile() {
  if (other_engine != nullptr)
    torch::autograd::set_default_engine_stub([]() -> Engine& { return *other_engine; });
}

bool in_backward_pass() {
  constexpr int no_task = -1;
  return torch::autograd::get_current_graph_task_id() != no_task;
}

bool is_engine_unused() {
  OwnEngine* const engine = current;
  return engine != nullptr && &Engine::get_default_engine() == engine &&
         engine->before == nullptr && !engine->has_run();
}

void wait_for_failed_passes() {
  for (OwnEngine* engine = current; engine != nullptr; engine = engine->before)
    engine->wait_for_failed_passes();
}

bool renew_engine() {
  if (!install_engine()) {
    MoreThreads::of(Engine::get_default_engine());
    return false;
  }
  if (current.load()->has_run()) current = new OwnEngine(current);
  return true;
}

}  // namespace headroom::libtorch
