#include "headroom/sim/dispatch/plan.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/card.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/dispatch/derived.h"
#include "headroom/sim/dispatch/structured.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::DeviceType;

constexpr const char* kFixedShape = "an operator with a result of fixed shape";

// Maps Meta results to the card's.
void map_results(Call& call, const Aliases& aliases, Plan& plan) {
  NewResults made(*call.card);
  call.replace_tensors([&](const Tensor& result) -> Tensor {
    if (!result.defined() || !result.is_meta()) return result;
    if (const Tensor* argument = aliases.argument_behind(result)) {
      const Written out = written(*argument, result);
      if (out.grew) plan.grown.push_back(out.argument.storage());
      return out.argument;
    }
    if (const c10::Storage* storage = aliases.storage_behind(result))
      return rewrapped(result, *storage, c10::DispatchKey::PrivateUse1);
    return made.like(result);
  });
}

bool plan_from_meta(Call& call, Plan& plan, c10::DispatchKey key) {
  Aliases aliases(DeviceType::Meta);
  call.replace_arguments(aliases, DeviceType::Meta);
  std::optional<StructuredScope> structured;
  if (in_python()) structured.emplace(call.handle);
  call.handle.redispatchBoxed(c10::DispatchKeySet(key), &call.stack);
  structured.reset();
  map_results(call, aliases, plan);
  return true;
}

bool plan_from_rule(Call& call) {
  call.op.entry->rule.function.callBoxed(
      call.handle, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), &call.stack);
  return true;
}

bool plan_shapes(Call& call, Plan& plan) {
  if (call.op.has_rule()) return plan_from_rule(call);
  if (call.op.entry != nullptr && !call.op.entry->needs_values.empty())
    throw rules::NeedsValues{call.op.entry->needs_values};
  if (call.op.on_meta) return plan_from_meta(call, plan, call.op.meta_key);
  if (plan_from_schema(call.handle, call.stack)) return true;
  return call.op.on_python_meta && plan_from_meta(call, plan, c10::DispatchKey::Meta);
}

std::string first_sentence(const std::string& text) {
  return text.substr(0, std::min(text.find(". "), text.find('\n')));
}

// True if the operator that LibTorch has no shapes for ("aten::nonzero: attempted to run ...") is
// one whose shapes depend on values.
bool names_one_that_needs_values(const std::string& complaint) {
  const std::string name = complaint.substr(0, complaint.find(": "));
  const auto part = c10::Dispatcher::singleton().findSchema({name, ""});
  return part && operator_of(*part).depends_on_values;
}

// An extension's operator, such as torchvision::nms: its shapes in Python may be meant only for a
// compiler.
bool only_its_kernel_tells(const Call& call) {
  return call.op.on_python_meta && !call.op.name.starts_with("aten::") &&
         call.handle.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// The words that torch recommends to authors of extensions.
bool says_that_shapes_need_values(const std::exception& error) {
  return std::string_view(error.what()).find("data-dependent shape") != std::string_view::npos;
}

[[noreturn]] void refuse(const Call& call, std::string_view expected, std::string_view to_try) {
  throw libtorch::NotSimulatedError(
      expectation("sim", expected, call.op.name + " on a shape-only card", to_try));
}

}  // namespace

Plan plan(Call& call) {
  if (mode_now(*call.card) == Mode::compute && only_its_kernel_tells(call)) return {};
  const RunningScope scope(call.card, true);
  if (call.op.entry != nullptr && !call.op.entry->refused.empty())
    throw libtorch::NotSimulatedError(call.op.name +
                                      " on a simulated card: " + call.op.entry->refused);
  Plan plan;
  try {
    plan.made = plan_shapes(call, plan);
  } catch (const rules::NeedsValues& need) {
    plan.needs_values = need.advice;
  } catch (const c10::NotImplementedError& error) {
    if (call.op.has_rule()) throw;
    const std::string complaint = first_sentence(error.what_without_backtrace());
    if (names_one_that_needs_values(complaint))
      plan.needs_values = kFixedShape;
    else
      plan.unknown_part = complaint;
  } catch (const std::exception& error) {  // from Python
    if (!only_its_kernel_tells(call) || !says_that_shapes_need_values(error)) throw;
    plan.needs_values = kFixedShape;
  }
  return plan;
}

void check_slow_way(const Call& call, const Plan& plan) {
  const std::string compute = "this part in compute mode";
  if (!plan.unknown_part.empty())
    refuse(call, "an operator whose parts all have shapes; LibTorch says: " + plan.unknown_part,
           compute);
  if (plan.needs_values || call.op.depends_on_values)
    refuse(call, "values, on which the shape of the result depends",
           plan.needs_values.value_or(kFixedShape) + ", or " + compute);
  if (!call.card->slow_way())
    refuse(call, "an operator with a rule for its shapes",
           "slow_way, by which a card asks the CPU's kernel over zeros, or compute mode");
}

}  // namespace headroom::sim::detail
