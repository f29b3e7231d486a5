#include "headroom/sim/detail/operators.h"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "headroom/base/error.h"

namespace headroom::sim::detail {
namespace {

bool returns_views_only(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* alias = result.alias_info();
    if (alias == nullptr || alias->isWrite()) return false;
  }
  return true;
}

int generator_argument(const c10::FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].type()->str().find("Generator") != std::string::npos)
      return static_cast<int>(i);
  return -1;
}

Operator look_up(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  Operator op;
  op.name = c10::toString(handle.operator_name());
  op.arguments = schema.arguments().size();
  if (op.name.starts_with("aten::")) op.entry = rules::table().find(op.name.substr(6));
  op.on_meta = handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
  op.on_cpu = handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  op.is_view = returns_views_only(schema);
  op.generator_argument = generator_argument(schema);
  const auto fits = [&](const rules::Kernel& kernel) {
    return kernel.arguments == 0 || kernel.arguments == op.arguments;
  };
  if (op.entry != nullptr && !(fits(op.entry->rule) && fits(op.entry->fill)))
    throw InternalError(expectation(
        "sim", "rules with the operator's " + std::to_string(op.arguments) + " arguments", op.name,
        ""));
  return op;
}

}  // namespace

const Operator& operator_of(const c10::OperatorHandle& handle) {
  static std::shared_mutex mutex;
  static std::unordered_map<c10::OperatorHandle, std::unique_ptr<const Operator>> known;
  // Most calls of a thread find their operator without a lock.
  thread_local std::unordered_map<c10::OperatorHandle, const Operator*> seen;
  if (const auto found = seen.find(handle); found != seen.end()) return *found->second;
  {
    const std::shared_lock lock(mutex);
    if (const auto found = known.find(handle); found != known.end())
      return *(seen[handle] = found->second.get());
  }
  auto made = std::make_unique<const Operator>(look_up(handle));
  const std::lock_guard lock(mutex);
  const auto [entry, added] = known.try_emplace(handle, std::move(made));
  return *(seen[handle] = entry->second.get());
}

}  // namespace headroom::sim::detail
