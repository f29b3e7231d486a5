#include "headroom/sim/detail/cublas.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

#include "headroom/sim/detail/of_thread.h"

namespace headroom::sim::detail {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<int>> free;  // by card; the last given back is the next given out
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

}  // namespace

int cublas_handle(int card) {
  Window* const window = of_thread<Window>();
  return window == nullptr ? 0 : window->handle(card);
}

std::optional<Bytes> cublas_workspace_by_environment() {
  static const std::optional<Bytes> asked = parsed(std::getenv("CUBLAS_WORKSPACE_CONFIG"));
  return asked;
}

}  // namespace headroom::sim::detail
