// The operators of step.h, with their kernels for the CPU and for Meta tensors. Those for CUDA are
// registered by libheadroom_cuda.so.
#include "headroom/kernels/step.h"

#include <torch/library.h>

#include "headroom/kernels/detail/calls.h"
#include "headroom/kernels/detail/isa.h"
#include "headroom/kernels/detail/step_arguments.h"
#include "headroom/kernels/detail/threads.h"

namespace headroom::kernels {

namespace detail {

const StepLoops& step_loops() {
#ifdef __x86_64__
  if (isa_now() == Isa::avx512) return kStepAvx512;
  if (isa_now() == Isa::avx2) return kStepAvx2;
#endif
  return kStepPlain;
}

}  // namespace detail

namespace {

using at::Tensor;
using at::TensorList;
using detail::StepArguments;
using MaybeTensor = std::optional<Tensor>;
using MaybeSeed = std::optional<std::int64_t>;
using Doubles = at::ArrayRef<double>;

constexpr std::int64_t kThreadChunks = 128;  // a thread's least share

// ---- CPU

bool is_skipped(const StepArguments& of) {
  return of.not_finite && *of.not_finite->const_data_ptr<float>() == 1;
}

std::uint32_t step_of(const StepArguments& of, std::size_t i) {
  return of.steps.empty() ? 0 : static_cast<std::uint32_t>(*of.steps[i].const_data_ptr<float>());
}

detail::Work work_of(const StepArguments& of, std::size_t i) {
  detail::Work work = of.work(i);
  work.random.step = step_of(of, i);
  return work;
}

template <typename Loop>
void over_chunks(const detail::Work& work, const Loop& loop) {
  detail::share_out((work.count + detail::kChunk - 1) / detail::kChunk, kThreadChunks, loop);
}

void adamw_meta(TensorList parameters, TensorList gradients, TensorList means, TensorList squares,
                TensorList steps, at::IntArrayRef numbers, Doubles rates, MaybeSeed seed,
                const MaybeTensor& scale, const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  of.check(true);
  of.check_states(means);
  of.check_states(squares);
  static_cast<void>(detail::adamw_rates(rates));
}

void adamw_cpu(TensorList parameters, TensorList gradients, TensorList means, TensorList squares,
               TensorList steps, at::IntArrayRef numbers, Doubles rates, MaybeSeed seed,
               const MaybeTensor& scale, const MaybeTensor& not_finite) {
  adamw_meta(parameters, gradients, means, squares, steps, numbers, rates, seed, scale, not_finite);
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  if (is_skipped(of)) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    detail::Work work = work_of(of, i);
    work.first = detail::numbers_of(means[i]);
    work.second = detail::numbers_of(squares[i]);
    const detail::Adamw by = detail::adamw_of(detail::adamw_rates(rates), step_of(of, i));
    over_chunks(work, [&](std::int64_t begin, std::int64_t end) {
      detail::step_loops().adamw(work, by, begin, end);
    });
  }
}

void compact_meta(TensorList parameters, TensorList gradients, TensorList first, TensorList second,
                  TensorList first_scales, TensorList second_scales, TensorList steps,
                  at::IntArrayRef numbers, Doubles rates, std::int64_t bits, MaybeSeed seed,
                  const MaybeTensor& scale, const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  of.check(true);
  of.check_codes(first, first_scales, bits);
  of.check_codes(second, second_scales, bits);
  static_cast<void>(detail::adamw_rates(rates));
}

void compact_cpu(TensorList parameters, TensorList gradients, TensorList first, TensorList second,
                 TensorList first_scales, TensorList second_scales, TensorList steps,
                 at::IntArrayRef numbers, Doubles rates, std::int64_t bits, MaybeSeed seed,
                 const MaybeTensor& scale, const MaybeTensor& not_finite) {
  compact_meta(parameters, gradients, first, second, first_scales, second_scales, steps, numbers,
               rates, bits, seed, scale, not_finite);
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  if (is_skipped(of)) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const detail::Work work = work_of(of, i);
    const detail::Compact states{static_cast<int>(bits), first[i].mutable_data_ptr<std::uint8_t>(),
                                 second[i].mutable_data_ptr<std::uint8_t>(),
                                 first_scales[i].mutable_data_ptr<float>(),
                                 second_scales[i].mutable_data_ptr<float>()};
    const detail::Adamw by = detail::adamw_of(detail::adamw_rates(rates), step_of(of, i));
    over_chunks(work, [&](std::int64_t begin, std::int64_t end) {
      detail::step_loops().compact_adamw(work, states, by, begin, end);
    });
  }
}

void sgd_meta(TensorList parameters, TensorList gradients, TensorList buffers, TensorList steps,
              at::IntArrayRef numbers, Doubles rates, MaybeSeed seed, const MaybeTensor& scale,
              const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  of.check(false);
  if (detail::sgd_rates(rates).momentum != 0) of.check_states(buffers);
}

void sgd_cpu(TensorList parameters, TensorList gradients, TensorList buffers, TensorList steps,
             at::IntArrayRef numbers, Doubles rates, MaybeSeed seed, const MaybeTensor& scale,
             const MaybeTensor& not_finite) {
  sgd_meta(parameters, gradients, buffers, steps, numbers, rates, seed, scale, not_finite);
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  if (is_skipped(of)) return;
  const detail::Sgd by = detail::sgd_of(detail::sgd_rates(rates));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    detail::Work work = work_of(of, i);
    if (by.has_momentum) work.first = detail::numbers_of(buffers[i]);
    over_chunks(work, [&](std::int64_t begin, std::int64_t end) {
      detail::step_loops().sgd(work, by, begin, end);
    });
  }
}

// ---- The dispatcher's side

template <typename Function>
auto operator_for(const char* name, Function*) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

MaybeSeed seed_of(const Rounding& rounding) {
  return rounding.stochastic ? MaybeSeed(static_cast<std::int64_t>(rounding.seed)) : std::nullopt;
}

std::vector<double> list_of(const AdamwRates& of) {
  return {of.learning_rate, of.beta1, of.beta2, of.weight_decay, of.epsilon};
}

void before(const StepLists& lists) {
  if (!lists.parameters.empty()) load_kernels_for(lists.parameters[0]);
}

void after(const StepLists& lists, std::initializer_list<TensorList> states) {
  count_changes(lists.parameters);
  if (lists.scale) count_changes(lists.gradients);
  for (const TensorList list : states) count_changes(list);
}

}  // namespace

std::int64_t code_bytes(std::int64_t numbers, int bits) {
  return bits == 8 ? numbers : (numbers + 1) / 2;
}

std::int64_t code_blocks(std::int64_t numbers, int bits) {
  const std::int64_t block = bits == 8 ? 256 : 128;
  return (numbers + block - 1) / block;
}

void compact_adamw_(const StepLists& lists, const CompactStates& states, const AdamwRates& rates,
                    const Rounding& rounding) {
  static const auto call = operator_for("headroom::compact_adamw_", &compact_meta);
  before(lists);
  call.call(lists.parameters, lists.gradients, states.first, states.second, states.first_scales,
            states.second_scales, lists.steps, lists.numbers, list_of(rates), states.bits,
            seed_of(rounding), lists.scale, lists.not_finite);
  after(lists, {states.first, states.second, states.first_scales, states.second_scales});
}

void adamw_(const StepLists& lists, const Tensors& means, const Tensors& squares,
            const AdamwRates& rates, const Rounding& rounding) {
  static const auto call = operator_for("headroom::adamw_", &adamw_meta);
  before(lists);
  call.call(lists.parameters, lists.gradients, means, squares, lists.steps, lists.numbers,
            list_of(rates), seed_of(rounding), lists.scale, lists.not_finite);
  after(lists, {means, squares});
}

void sgd_(const StepLists& lists, const Tensors& buffers, const SgdRates& rates,
          const Rounding& rounding) {
  static const auto call = operator_for("headroom::sgd_", &sgd_meta);
  before(lists);
  const std::vector<double> list{rates.learning_rate, rates.momentum, rates.dampening,
                                 rates.weight_decay, rates.nesterov ? 1.0 : 0.0};
  call.call(lists.parameters, lists.gradients, buffers, lists.steps, lists.numbers, list,
            seed_of(rounding), lists.scale, lists.not_finite);
  after(lists, {buffers});
}

TORCH_LIBRARY_FRAGMENT(headroom, m) {
  m.def(
      "adamw_(Tensor(a!)[] parameters, Tensor(b!)[] gradients, Tensor(c!)[] means, "
      "Tensor(d!)[] squares, Tensor[] steps, int[] numbers, float[] rates, int? seed, "
      "Tensor? scale, Tensor? not_finite) -> ()");
  m.def(
      "compact_adamw_(Tensor(a!)[] parameters, Tensor(b!)[] gradients, Tensor(c!)[] first, "
      "Tensor(d!)[] second, Tensor(e!)[] first_scales, Tensor(f!)[] second_scales, "
      "Tensor[] steps, int[] numbers, float[] rates, int bits, int? seed, Tensor? scale, "
      "Tensor? not_finite) -> ()");
  m.def(
      "sgd_(Tensor(a!)[] parameters, Tensor(b!)[] gradients, Tensor(c!)[] buffers, "
      "Tensor[] steps, int[] numbers, float[] rates, int? seed, Tensor? scale, "
      "Tensor? not_finite) -> ()");
}

TORCH_LIBRARY_IMPL(headroom, CPU, m) {
  m.impl("adamw_", &adamw_cpu);
  m.impl("compact_adamw_", &compact_cpu);
  m.impl("sgd_", &sgd_cpu);
}

TORCH_LIBRARY_IMPL(headroom, Meta, m) {
  m.impl("adamw_", &adamw_meta);
  m.impl("compact_adamw_", &compact_meta);
  m.impl("sgd_", &sgd_meta);
}

// They have no derivative, and may be called where others have one.
TORCH_LIBRARY_IMPL(headroom, Autograd, m) {
  for (const char* name : {"adamw_", "compact_adamw_", "sgd_"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}

}  // namespace headroom::kernels
