#include "headroom/sim/dispatch/execute.h"

#include <ATen/ATen.h>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/card.h"
#include "headroom/sim/device/cublas.h"
#include "headroom/sim/device/running_operator.h"
#include "headroom/sim/dispatch/assumptions.h"
#include "headroom/sim/dispatch/call.h"
#include "headroom/sim/dispatch/fill.h"
#include "headroom/sim/dispatch/known_arguments.h"
#include "headroom/sim/dispatch/plan.h"
#include "headroom/sim/dispatch/read_results.h"
#include "headroom/sim/dispatch/reduction_memory.h"
#include "headroom/sim/dispatch/stream_uses.h"

namespace headroom::sim::detail {
namespace {

using c10::DeviceType;
using c10::IValue;

// Throws CUDA's error, in its words, for a generator of another device.
void check_generator(const Call& call) {
  if (call.op.generator_argument < 0) return;
  const IValue& given =
      call.stack[call.first + static_cast<std::size_t>(call.op.generator_argument)];
  if (!given.isGenerator()) return;
  const DeviceType type = given.toGenerator().device().type();
  TORCH_CHECK(type == DeviceType::PrivateUse1,
              "Expected a 'sim' device type for generator but found '",
              c10::DeviceTypeName(type, true), "' (when running ", call.op.name, ")");
}

void tell_observer(const Call& call) {
  if (Observer* const observer = call.card->observer())
    observer->on_operator({call.op.name, call.stack.data() + call.first, call.op.arguments});
}

// After the results, as CUDA does.
void take_workspace(const Call& call) {
  if (call.op.uses_cublas()) use_cublas(*call.card);
}

void run_unknown_or_known(Call& call);

void run_shape_only(Call& call) {
  const bool reads = may_read(call);
  std::vector<IValue> arguments = reads ? call.values() : std::vector<IValue>();
  forget_written(call, reads);
  const gpu::ReductionMemory parts = reduction_memory(call);
  const std::optional<Places> places = places_found(call);
  if (assume_results(call)) return;
  std::vector<IValue> given;
  if (call.op.may_need_values && call.card->assume_true()) given = call.values();
  Plan planned = plan(call);
  if (planned.needs_values && !given.empty()) {
    call.set_values(given);
    if (assume_arguments(call)) return run_unknown_or_known(call);
    planned = plan_by_share(call);
    if (!planned.made) call.set_values(std::move(given));
  }
  if (planned.made) {
    if (reads) read_results(call, std::move(arguments));
    if (places) assume_places(call, *places);
    reduce_through(parts, call);
    return take_workspace(call);
  }
  check_slow_way(call, planned);
  forget_written(call, /*still_read=*/false);
  run_unplanned(call);
}

void run_computing(Call& call) {
  std::vector<IValue> arguments = call.values();
  const Outs outs = outs_of(call);
  const gpu::ReductionMemory parts = reduction_memory(call);
  const Plan planned = plan(call);
  if (planned.made) {
    reduce_through(parts, call);
    take_workspace(call);
    const bool has_values = !running.knows || has_knowable_results(call);
    if (has_values && !call.op.is_view) fill(call, std::move(arguments), planned, outs);
  } else {
    call.set_values(std::move(arguments));
    run_unplanned(call);
  }
}

// Computes values that a program may decide by, on a card that computes nothing else. False if the
// CPU's kernel cannot, for a type that it lacks for example: the arguments are then restored, and
// the results unknown.
bool run_knowing(Call& call) {
  const std::vector<IValue> arguments = call.values();
  try {
    const KnowingScope scope;
    prepare_overwritten(call);
    run_computing(call);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const libtorch::DeviceError&) {
    throw;
  } catch (const c10::Error&) {  // Python's own exceptions, Ctrl-C among them, pass through
  } catch (const InternalError&) {
  }
  call.set_values(arguments);
  return false;
}

void run_unknown_or_known(Call& call) {
  if (!knows_arguments(call) || !run_knowing(call)) run_shape_only(call);
}

}  // namespace

void execute(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Call call(handle, operator_of(handle), *stack);
  check_generator(call);
  tell_observer(call);
  const trace::OperationScope scope(call.op.name);
  const std::uint64_t launched = launch_on_stream(call);
  if (mode_now(*call.card) == Mode::compute)
    run_computing(call);
  else
    run_unknown_or_known(call);
  results_on_stream(call, launched);
}

}  // namespace headroom::sim::detail
