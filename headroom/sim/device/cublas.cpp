#include "headroom/sim/device/cublas.h"

#include <c10/core/AutogradState.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "headroom/libtorch/autograd_engine.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/device/streams.h"
#include "headroom/sim/device/thread_value.h"

namespace headroom::sim::detail {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<int>> free;  // by card; the last one returned is the next one taken
  std::map<int, int> made;
  std::map<int, int> backward;  // by card, of its thread of backward passes
};

const std::shared_ptr<Pool>& pool() {
  static const auto& one = *new std::shared_ptr<Pool>(std::make_shared<Pool>());
  return one;
}

int take_handle(Pool& pool, int card) {  // its mutex is held
  std::vector<int>& free = pool.free[card];
  if (free.empty()) return pool.made[card]++;
  const int handle = free.back();
  free.pop_back();
  return handle;
}

// The handles of one thread.
class Window {
 public:
  ~Window() {
    const std::lock_guard lock(pool_->mutex);
    for (const auto& [card, handle] : held_) pool_->free[card].push_back(handle);
  }

  int handle(int card) {
    const auto held = held_.find(card);
    if (held != held_.end()) return held->second;
    const std::lock_guard lock(pool_->mutex);
    return held_[card] = take_handle(*pool_, card);
  }

 private:
  std::shared_ptr<Pool> pool_ = pool();
  std::map<int, int> held_;
};

// A backward pass that its caller's thread runs. On CUDA a thread of autograd's would run it: one
// for each card, as long as the process lives.
bool is_backward_of_another_thread() {
  return !c10::AutogradState::get_tls_state().get_multithreading_enabled() &&
         libtorch::in_backward_pass();
}

int backward_handle(int card) {
  Pool& of_all = *pool();
  const std::lock_guard lock(of_all.mutex);
  const auto held = of_all.backward.find(card);
  return held != of_all.backward.end() ? held->second
                                       : of_all.backward[card] = take_handle(of_all, card);
}

int cublas_handle(int card) {
  if (is_backward_of_another_thread()) return backward_handle(card);
  Window* const window = thread_value<Window>();
  return window == nullptr ? 0 : window->handle(card);
}

// ":4096:2:16:8" is two buffers of 4096 KiB and eight of 16.
std::optional<Bytes> parsed(const char* text) {
  if (text == nullptr) return {};
  const std::string config(text);
  const std::regex part(":([0-9]+):([0-9]+)");
  std::optional<Bytes> total;
  for (std::sregex_iterator at(config.begin(), config.end(), part), end; at != end; ++at)
    total = Bytes{total.value_or(Bytes{}).count +
                  std::stoll((*at)[1].str()) * 1024 * std::stoll((*at)[2].str())};
  return total;
}

std::optional<Bytes> workspace_by_environment() {
  static const std::optional<Bytes> asked = parsed(std::getenv("CUBLAS_WORKSPACE_CONFIG"));
  return asked;
}

void take(Card& card, bool lt, const std::optional<Bytes>& size) {
  if (!card.options().cublas_workspaces || card.rules() != Rules::cuda || !size || size->count == 0)
    return;
  const Card::Workspace workspace{.handle = cublas_handle(card.index()),
                                  .stream = allocator_stream(current_stream(card.index())),
                                  .lt = lt};
  if (card.has_workspace(workspace)) return;
  const RunningScope running_on(&card, true);
  const trace::OperationScope named(kWorkspace);
  card.take_workspace(workspace, *size);
}

}  // namespace

// PyTorch 2.11 gives cuBLASLt a workspace of its own unless TORCH_CUBLASLT_UNIFIED_WORKSPACE is
// set. getCUDABlasLtWorkspaceSize takes it for set by default, getCUDABlasLtWorkspace does not.
// Source: the wheel's libtorch_cuda.so, both functions of at::cuda.
void use_cublas(Card& card) {
  if (card.options().profile == nullptr) return;
  const auto wanted = workspace_by_environment();
  take(card, false, wanted ? wanted : card.options().profile->cublas_workspace);
}

void use_cublaslt(Card& card) {
  use_cublas(card);
  const gpu::DeviceProfile* const profile = card.options().profile;
  if (profile == nullptr || !profile->cublaslt_workspace) return;
  const auto most = workspace_by_environment();
  const Bytes own = *profile->cublaslt_workspace;
  take(card, true, most && *most < own ? *most : own);
}

}  // namespace headroom::sim::detail
