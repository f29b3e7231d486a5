#include "headroom/sim/device/cublas.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/device/streams.h"
#include "headroom/sim/device/thread_value.h"

namespace headroom::sim::detail {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<int>> free;  // by card; the last one returned is the next one taken
  std::map<int, int> made;
};

const std::shared_ptr<Pool>& pool() {
  static const auto& one = *new std::shared_ptr<Pool>(std::make_shared<Pool>());
  return one;
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
    return held != held_.end() ? held->second : held_[card] = take(card);
  }

 private:
  int take(int card) {
    const std::lock_guard lock(pool_->mutex);
    std::vector<int>& free = pool_->free[card];
    if (free.empty()) return pool_->made[card]++;
    const int handle = free.back();
    free.pop_back();
    return handle;
  }

  std::shared_ptr<Pool> pool_ = pool();
  std::map<int, int> held_;
};

int cublas_handle(int card) {
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
