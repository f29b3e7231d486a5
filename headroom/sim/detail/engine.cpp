#include "headroom/sim/detail/engine.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <mutex>

namespace headroom::sim::detail {
namespace {

using torch::autograd::Engine;

// The same engine once more, with device threads of its own.
class SimEngine final : public Engine {
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

  static Engine& instance() {
    // Never deleted, as LibTorch's own: its threads may still run when the process ends.
    static auto* engine = new SimEngine;
    return *engine;
  }

 private:
  std::once_flag threads_;
};

}  // namespace

void install_engine() {
  if (&Engine::get_default_engine() == &Engine::get_base_engine())
    torch::autograd::set_default_engine_stub(&SimEngine::instance);
}

}  // namespace headroom::sim::detail
