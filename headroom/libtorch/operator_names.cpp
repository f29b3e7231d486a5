#include "headroom/libtorch/operator_names.h"

#include <ATen/record_function.h>

#include <mutex>
#include <optional>
#include <string_view>

#include "headroom/trace/where.h"

namespace headroom::libtorch {
namespace {

struct Running final : at::ObserverContext {
  std::optional<trace::OperationScope> scope;
};

bool only_makes_room(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty") ||
         name.starts_with("aten::resize_");
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (!trace::here.operation.empty() && only_makes_room(name)) return nullptr;
  const char* const overload = function.overload_name();
  auto running = std::make_unique<Running>();
  running->scope.emplace(name, overload != nullptr ? overload : "");
  return running;
}

void end(const at::RecordFunction&, at::ObserverContext* running) {
  if (running != nullptr) static_cast<Running*>(running)->scope.reset();
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

}  // namespace headroom::libtorch
