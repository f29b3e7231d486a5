#include "headroom/sim/detail/execute.h"

#include <ATen/ATen.h>

#include <optional>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/card.h"
#include "headroom/sim/detail/call.h"
#include "headroom/sim/detail/executing.h"
#include "headroom/sim/detail/fill.h"
#include "headroom/sim/detail/known.h"
#include "headroom/sim/detail/plan.h"
#include "headroom/sim/detail/reductions.h"
#include "headroom/sim/detail/streams.h"
#include "headroom/sim/detail/unknown.h"

namespace headroom::sim::detail {
namespace {

using c10::DeviceType;
using c10::IValue;

// As CUDA does, and in its words.
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

std::optional<trace::OperationScope> operation_scope(const Call& call) {
  trace::Recorder* const recorder = call.card->recorder();
  if (recorder == nullptr) return {};
  return std::optional<trace::OperationScope>(std::in_place, *recorder,
                                              recorder->name(call.op.name));
}

void tell_watcher(const Call& call) {
  if (Observer* const observer = call.card->observer())
    observer->on_operator({call.op.name, call.stack.data() + call.first, call.op.arguments});
}

// After the results, as CUDA does.
void use_cublas(const Call& call) {
  if (call.op.uses_cublas())
    call.card->use_cublas(allocator_stream(current_stream(call.card->index())));
}

void run_shape_only(Call& call) {
  const bool reads = may_read(call);
  std::vector<IValue> arguments = reads ? call.values() : std::vector<IValue>();
  forget_written(call, reads);
  const gpu::ReductionMemory parts = reduction_memory(call);
  const Plan planned = plan(call);
  if (planned.made) {
    if (reads) read_results(call, std::move(arguments));
    reduce_through(parts, call);
    return use_cublas(call);
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
    use_cublas(call);
    const bool has_values = !executing.knows || has_knowable_results(call);
    if (has_values && !call.op.is_view) fill(call, std::move(arguments), planned, outs);
  } else {
    call.set_values(std::move(arguments));
    run_unplanned(call);
  }
}

// What a program decides by, even where nothing is computed. False where the CPU's kernel cannot
// tell it, for a type that it does not have, say: then the arguments are back, and it is not known.
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
  } catch (const c10::Error&) {  // nobody else's: Python's own, Ctrl-C among them, go on
  } catch (const InternalError&) {
  }
  call.set_values(arguments);
  return false;
}

}  // namespace

void execute(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  Call call(handle, operator_of(handle), *stack);
  check_generator(call);
  const std::optional<trace::OperationScope> scope = operation_scope(call);
  tell_watcher(call);
  if (mode_now(*call.card) == Mode::compute)
    run_computing(call);
  else if (!knows_arguments(call) || !run_knowing(call))
    run_shape_only(call);
}

}  // namespace headroom::sim::detail
