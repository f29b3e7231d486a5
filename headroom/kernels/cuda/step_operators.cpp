// Registers the kernels for CUDA of the operators in headroom/kernels/step.cpp. Part of
// libheadroom_cuda.so.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "headroom/kernels/cuda/packed.h"
#include "headroom/kernels/cuda/step.h"
#include "headroom/kernels/detail/step_arguments.h"

namespace headroom::kernels::cuda {
namespace {

using at::Tensor;
using at::TensorList;
using detail::StepArguments;
using MaybeTensor = std::optional<Tensor>;
using MaybeSeed = std::optional<std::int64_t>;
using Doubles = at::ArrayRef<double>;

void check_launched(int error) {
  TORCH_CHECK(error == 0, "headroom: a kernel could not be launched: ", words_of(error));
}

void check_devices(TensorList parameters, std::initializer_list<TensorList> lists) {
  for (const TensorList list : lists)
    for (const Tensor& tensor : list)
      TORCH_CHECK(tensor.device() == parameters[0].device(), "headroom: expected all tensors on ",
                  parameters[0].device(), ", received one on ", tensor.device());
}

OnDevice on_device(const StepArguments& of, std::size_t i) {
  return {of.steps.empty() ? nullptr : of.steps[i].const_data_ptr<float>(),
          of.not_finite ? of.not_finite->const_data_ptr<float>() : nullptr};
}

AdamwFactors factors_of(Doubles rates) {
  const AdamwRates of = detail::adamw_rates(rates);
  return {of.learning_rate, of.beta1, of.beta2, of.weight_decay, of.epsilon};
}

// Calls `launch(i, work, on, stream)` for each parameter with numbers.
template <typename Launch>
void for_each(const StepArguments& of, const Launch& launch) {
  if (of.parameters.empty()) return;
  const c10::cuda::CUDAGuard guard(of.parameters[0].device());
  CUstream_st* const stream = c10::cuda::getCurrentCUDAStream().stream();
  for (std::size_t i = 0; i < of.parameters.size(); ++i)
    if (of.parameters[i].numel() > 0)
      check_launched(launch(i, of.work(i), on_device(of, i), stream));
}

void check(const StepArguments& of, bool needs_steps, std::initializer_list<TensorList> states) {
  of.check(needs_steps);
  if (of.parameters.empty()) return;
  check_devices(of.parameters, {of.parameters, of.gradients, of.steps});
  check_devices(of.parameters, states);
  for (const MaybeTensor* one : {&of.scale, &of.not_finite})
    if (*one) check_devices(of.parameters, {TensorList(**one)});
}

void adamw_cuda(TensorList parameters, TensorList gradients, TensorList means, TensorList squares,
                TensorList steps, at::IntArrayRef numbers, Doubles rates, MaybeSeed seed,
                const MaybeTensor& scale, const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  check(of, true, {means, squares});
  of.check_states(means);
  of.check_states(squares);
  const AdamwFactors factors = factors_of(rates);
  for_each(of, [&](std::size_t i, detail::Work work, const OnDevice& on, CUstream_st* stream) {
    work.first = detail::numbers_of(means[i]);
    work.second = detail::numbers_of(squares[i]);
    return adamw(work, factors, on, stream);
  });
}

void compact_cuda(TensorList parameters, TensorList gradients, TensorList first, TensorList second,
                  TensorList first_scales, TensorList second_scales, TensorList steps,
                  at::IntArrayRef numbers, Doubles rates, std::int64_t bits, MaybeSeed seed,
                  const MaybeTensor& scale, const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  check(of, true, {first, second, first_scales, second_scales});
  of.check_codes(first, first_scales, bits);
  of.check_codes(second, second_scales, bits);
  const AdamwFactors factors = factors_of(rates);
  for_each(
      of, [&](std::size_t i, const detail::Work& work, const OnDevice& on, CUstream_st* stream) {
        const detail::Compact states{
            static_cast<int>(bits), first[i].mutable_data_ptr<std::uint8_t>(),
            second[i].mutable_data_ptr<std::uint8_t>(), first_scales[i].mutable_data_ptr<float>(),
            second_scales[i].mutable_data_ptr<float>()};
        return compact_adamw(work, states, factors, on, stream);
      });
}

void sgd_cuda(TensorList parameters, TensorList gradients, TensorList buffers, TensorList steps,
              at::IntArrayRef numbers, Doubles rates, MaybeSeed seed, const MaybeTensor& scale,
              const MaybeTensor& not_finite) {
  const StepArguments of{parameters, gradients, steps, numbers, seed, scale, not_finite};
  check(of, false, {buffers});
  const detail::Sgd by = detail::sgd_of(detail::sgd_rates(rates));
  if (by.has_momentum) of.check_states(buffers);
  for_each(of, [&](std::size_t i, detail::Work work, const OnDevice& on, CUstream_st* stream) {
    if (by.has_momentum) work.first = detail::numbers_of(buffers[i]);
    return sgd(work, by, on, stream);
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CUDA, m) {
  m.impl("adamw_", &adamw_cuda);
  m.impl("compact_adamw_", &compact_cuda);
  m.impl("sgd_", &sgd_cuda);
}

}  // namespace headroom::kernels::cuda
