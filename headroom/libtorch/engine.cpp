#include "headroom/libtorch/engine.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <mutex>

#include "headroom/libtorch/detail/saved_hooks.h"

namespace headroom::libtorch {
namespace {

using torch::autograd::Engine;

// The same engine once more, with device threads of its own.
class OwnEngine final : public Engine {
 public:
  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& task,
      std::shared_ptr<torch::autograd::Node> root, torch::autograd::InputBuffer&& inputs) override {
    std::call_once(threads_, [this] {
      // LibTorch starts device threads for the first engine of the process that runs anything.
      initialize_device_threads_pool();
      if (device_ready_queues_.empty()) start_device_threads();
    });
    return Engine::execute_with_graph_task(task, std::move(root), std::move(inputs));
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return detail::saved_variable_hooks();
  }

  static Engine& instance() {
    // Never deleted, as LibTorch's own: its threads may still run when the process ends.
    static auto* engine = new OwnEngine;
    return *engine;
  }

 private:
  std::once_flag threads_;
};

}  // namespace

bool install_engine() {
  if (&Engine::get_default_engine() == &Engine::get_base_engine())
    torch::autograd::set_default_engine_stub(&OwnEngine::instance);
  return &Engine::get_default_engine() == &OwnEngine::instance();
}

}  // namespace headroom::libtorch
