#include "headroom/sim/dispatch/fill.h"

#include <ATen/ATen.h>

#include <cstring>
#include <sstream>

#include "headroom/base/error.h"
#include "headroom/libtorch/operator_refusal.h"
#include "headroom/sim/card.h"
#include "headroom/sim/device/block.h"
#include "headroom/sim/device/running_operator.h"

namespace headroom::sim::detail {
namespace {

using at::Tensor;
using c10::DeviceType;
using c10::IValue;

c10::DataPtr nothing_on_cpu() {
  return {nullptr, c10::Device(DeviceType::CPU)};
}

// ---- The kernel ----

// Random numbers come from the card's own state.
void draw_from_card(const Call& call) {
  if (call.op.generator_argument < 0) return;
  IValue& generator = call.stack[call.first + static_cast<std::size_t>(call.op.generator_argument)];
  if (generator.isNone()) generator = call.card->generator();
}

// For an operator that has a half-precision kernel on CUDA but not on the CPU: computes in float
// and rounds once, as CUDA's kernels round their sums.
void run_in_float(Call& call, c10::DispatchKeySet cpu) {
  std::vector<std::pair<Tensor, Tensor>> widened;  // in float, and the original
  call.replace_tensors([&](const Tensor& tensor) -> Tensor {
    if (!tensor.defined() || !at::isReducedFloatingType(tensor.scalar_type())) return tensor;
    return widened.emplace_back(tensor.to(at::kFloat), tensor).first;
  });
  call.handle.redispatchBoxed(cpu, &call.stack);
  if (widened.empty()) return;
  call.replace_tensors([&](const Tensor& result) -> Tensor {
    for (const auto& [wide, original] : widened)
      if (wide.is_same(result)) return original.copy_(result);
    return result.defined() && result.scalar_type() == at::kFloat
               ? result.to(widened.back().second.scalar_type())
               : result;
  });
}

void run_on_cpu(Call& call, Aliases& aliases) {
  draw_from_card(call);
  call.replace_arguments(aliases, DeviceType::CPU);
  run_kernel(call);
}

// ---- From computed results into the planned ones ----

[[noreturn]] void differs_from_plan(const Call& call, const std::string& expected,
                                    const std::string& received) {
  throw InternalError(expectation("sim", expected, call.op.name + received));
}

std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << " of " << tensor.dtype().name();
  return text.str();
}

void check_shape(const Call& call, const Tensor& planned, const Tensor& computed) {
  if (computed.sizes() == planned.sizes() && computed.dtype() == planned.dtype()) return;
  differs_from_plan(call, "a result of the shape that was planned",
                    ": planned " + shape_of(planned) + ", computed " + shape_of(computed));
}

bool can_adopt(const Tensor& planned, const Tensor& computed) {
  return computed.storage_offset() == 0 && planned.storage_offset() == 0 &&
         computed.strides() == planned.strides() && computed.storage().use_count() == 1 &&
         computed.storage().nbytes() >= planned.storage().nbytes() && computed.device().is_cpu() &&
         computed.is_conj() == planned.is_conj() && computed.is_neg() == planned.is_neg();
}

c10::DataPtr data_taken_from(const Tensor& computed) {
  return computed.storage().unsafeGetStorageImpl()->set_data_ptr(nothing_on_cpu());
}

c10::Storage host_view(const c10::Storage& storage) {
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(storage.mutable_data(), c10::Device(DeviceType::CPU)), nullptr, false};
}

void give_zeros(const c10::Storage& storage) {
  give_data(storage);
  std::memset(storage.mutable_data(), 0, storage.nbytes());
}

void settle(const Call& call, const Tensor& planned, const Tensor& computed,
            const Aliases& aliases) {
  if (!planned.defined() || planned.numel() == 0 || !on_card(planned)) return;
  if (planned.is_sparse()) {
    if (!computed.is_sparse()) differs_from_plan(call, "a sparse result", "");
    settle(call, planned._indices(), computed._indices(), aliases);
    settle(call, planned._values(), computed._values(), aliases);
    return;
  }
  if (computed.defined() &&
      (aliases.argument_behind(computed) != nullptr || aliases.storage_behind(computed) != nullptr))
    return;  // written in place
  const c10::Storage& storage = planned.storage();
  const bool has_data = storage.data() != nullptr;
  if (!computed.defined()) {
    if (!has_data) give_zeros(storage);
    return;
  }
  check_shape(call, planned, computed);
  if (!has_data && can_adopt(planned, computed))
    return give_data(storage, data_taken_from(computed));
  if (!has_data) give_data(storage);
  rewrapped(planned, host_view(storage), c10::DispatchKey::CPU).copy_(computed);
}

// One result: a tensor, a list of tensors, or a number, which only the kernel computes.
void settle_value(const Call& call, IValue& planned, IValue& computed, const Aliases& aliases) {
  std::vector<Tensor> tensors;
  libtorch::for_each_tensor(computed, [&](const Tensor& tensor) { tensors.push_back(tensor); });
  std::size_t next = 0;
  libtorch::for_each_tensor(planned, [&](const Tensor& tensor) {
    if (next == tensors.size()) differs_from_plan(call, "as many results as planned", "");
    settle(call, tensor, tensors[next++], aliases);
  });
  if (!planned.isTensor() && !planned.isTensorList()) planned = std::move(computed);
}

void give_data_to_grown(const Plan& plan, const Outs& outs) {
  const auto give = [](const c10::Storage& storage) {
    if (storage.data() == nullptr) give_data(storage);
  };
  for (const c10::Storage& storage : plan.grown) give(storage);
  for (const auto& [storage, bytes_before] : outs)
    if (storage.nbytes() > bytes_before) give(storage);
}

// An argument that the kernel wrote. Without a plan its memory grows only now.
Tensor written_by_cpu(const Call& call, const Tensor& argument, const Tensor& result) {
  const Written out = written(argument, result);
  if (out.grew && mode_now(*call.card) == Mode::compute)
    std::memcpy(out.argument.storage().mutable_data(), result.storage().data(),
                result.storage().nbytes());
  return out.argument;
}

}  // namespace

Outs outs_of(const Call& call) {
  Outs outs;
  if (call.op.writes_out)
    call.for_each_tensor([&](const Tensor& tensor) {
      if (on_card(tensor)) outs.emplace_back(tensor.storage(), tensor.storage().nbytes());
    });
  return outs;
}

void run_kernel(Call& call) {
  const c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
  if (call.op.has_fill()) {
    const RunningScope scope(call.card, false);
    call.op.entry->fill.function.callBoxed(call.handle, cpu, &call.stack);
    return;
  }
  if (!call.op.on_cpu)
    throw libtorch::NotSimulatedError(
        expectation("sim", "an operator with a kernel for the CPU in LibTorch",
                    call.op.name + ", which has only one for CUDA", "the operators it is made of"));
  if (call.op.widens_half())
    run_in_float(call, cpu);
  else
    call.handle.redispatchBoxed(cpu, &call.stack);
}

void fill(Call& call, std::vector<IValue> arguments, const Plan& plan, const Outs& outs) {
  std::vector<IValue> planned = call.values();
  call.set_values(std::move(arguments));
  give_data_to_grown(plan, outs);
  // Where a known argument decides the result, the others' values do not matter.
  Aliases aliases(DeviceType::CPU,
                  running.knows ? Aliases::Missing::is_zero : Aliases::Missing::fails);
  run_on_cpu(call, aliases);
  for (std::size_t i = 0; i < planned.size(); ++i)
    settle_value(call, planned[i], call.stack[call.first + i], aliases);
  call.set_values(std::move(planned));
}

void run_unplanned(Call& call) {
  const bool computes = mode_now(*call.card) == Mode::compute;
  const RunningScope scope(call.card, false);
  Aliases aliases(DeviceType::CPU, computes ? Aliases::Missing::fails : Aliases::Missing::all_zero);
  run_on_cpu(call, aliases);
  NewResults made(*call.card);
  call.replace_tensors([&](const Tensor& result) -> Tensor {
    if (!result.defined()) return result;
    if (const Tensor* argument = aliases.argument_behind(result))
      return written_by_cpu(call, *argument, result);
    if (const c10::Storage* storage = aliases.storage_behind(result))
      return rewrapped(result, *storage, c10::DispatchKey::PrivateUse1);
    bool first_over_its_storage = false;
    Tensor here = made.like(result, &first_over_its_storage);
    if (computes && first_over_its_storage && result.storage().nbytes() > 0)
      give_data(here.storage(), data_taken_from(result));
    return here;
  });
}

}  // namespace headroom::sim::detail
