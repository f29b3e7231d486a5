#include "headroom/libtorch/current_operator.h"

#include <ATen/record_function.h>

#include <mutex>
#include <string_view>

namespace headroom::libtorch {
namespace {

// The dispatcher owns the names and never frees them.
struct Running {
  const char* name = nullptr;
  const char* overload = "";
};
thread_local Running running;

struct Before final : at::ObserverContext {
  Running was;
};

bool only_makes_room(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
         name.starts_with("aten::resize_");
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  auto before = std::make_unique<Before>();
  before->was = running;
  if (running.name == nullptr || !only_makes_room(function.name()))
    running = {function.name(), function.overload_name()};
  return before;
}

void end(const at::RecordFunction&, at::ObserverContext* before) {
  running = static_cast<Before*>(before)->was;
}

std::mutex mutex;
int g_wanted = 0;
at::CallbackHandle handle = 0;

}  // namespace

OperatorNames::OperatorNames() {
  const std::lock_guard lock(mutex);
  if (g_wanted++ == 0)
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
}

OperatorNames::~OperatorNames() {
  const std::lock_guard lock(mutex);
  if (--g_wanted == 0) at::removeCallback(handle);
}

std::string current_operator() {
  if (running.name == nullptr) return "";
  std::string name = running.name;
  if (running.overload != nullptr && *running.overload != '\0')
    name += '.' + std::string(running.overload);
  return name;
}

}  // namespace headroom::libtorch
