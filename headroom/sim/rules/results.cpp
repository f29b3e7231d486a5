#include "headroom/sim/rules/results.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/running_operator.h"

namespace headroom::sim::rules {
namespace {

// True if nothing is broadcast, promoted or reordered, as in most calls: every input is laid out
// like the first one.
bool all_alike(TensorList inputs, bool any_type) {
  const Tensor& first = inputs.front();
  if (!first.is_non_overlapping_and_dense()) return false;
  for (const Tensor& input : inputs)
    if (input.sizes() != first.sizes() || input.strides() != first.strides() ||
        input.device() != first.device() ||
        (!any_type && input.scalar_type() != first.scalar_type()))
      return false;
  return true;
}

Tensor iterated(TensorList inputs, OptionalType type) {
  detail::Aliases aliases(c10::DeviceType::Meta);
  at::TensorIteratorConfig config;
  Tensor none;
  const Tensor* on_card = nullptr;
  config.add_owned_output(none).promote_inputs_to_common_dtype(true).allow_cpu_scalars(true);
  for (const Tensor& input : inputs) {
    if (detail::on_card(input) && on_card == nullptr) on_card = &input;
    config.add_owned_const_input(aliases.of(input));
  }
  if (type)
    config.promote_inputs_to_common_dtype(false)
        .check_all_same_dtype(false)
        .declare_static_dtype_and_device(*type, c10::Device(c10::DeviceType::Meta));
  const Tensor meta = config.build().output();
  if (on_card == nullptr) return meta;
  return at::empty_strided(meta.sizes(), meta.strides(),
                           on_card->options().dtype(meta.scalar_type()));
}

}  // namespace

Rules rules_now() {
  const Card* card = detail::running.card;
  return card == nullptr ? Rules::cuda : card->rules();
}

Tensor elementwise(TensorList inputs, OptionalType type) {
  const Tensor& first = inputs.front();
  if (!all_alike(inputs, type.has_value())) return iterated(inputs, type);
  return first.is_contiguous() ? contiguous(first, type) : like(first, type);
}

Tensor like(const Tensor& x, OptionalType type) {
  const auto options = x.options().dtype(type.value_or(x.scalar_type()));
  return x.is_non_overlapping_and_dense() ? at::empty_strided(x.sizes(), x.strides(), options)
                                          : at::empty_like(x, options);
}

Tensor contiguous(IntArrayRef sizes, const Tensor& like, OptionalType type) {
  return at::empty(sizes, like.options().dtype(type.value_or(like.scalar_type())));
}

Tensor contiguous(const Tensor& like, OptionalType type) {
  return contiguous(like.sizes(), like, type);
}

Tensor in_format(IntArrayRef sizes, const Tensor& like, MemoryFormat format) {
  return at::empty(sizes, like.options(), format);
}

Tensor scalar(const Tensor& like, OptionalType type) {
  return contiguous({}, like, type);
}

Tensor contiguous_if(bool wanted, const Optional& like) {
  return wanted && is_defined(like) ? contiguous(*like) : Tensor();
}

Tensor as_contiguous(const Tensor& x, MemoryFormat format) {
  return x.is_contiguous(format) ? x : in_format(x.sizes(), x, format);
}

Sizes with_last(IntArrayRef sizes, IntArrayRef last) {
  Sizes changed = sizes.vec();
  TORCH_CHECK(changed.size() >= last.size(), "expected at least ", last.size(),
              " dimensions, but got a tensor of size ", sizes);
  std::copy(last.begin(), last.end(), changed.end() - static_cast<std::ptrdiff_t>(last.size()));
  return changed;
}

ScalarType accumulation_type(ScalarType type) {
  return at::toOpMathType(type);
}

const gpu::DeviceProfile* running_profile() {
  const Card* const card = detail::running.card;
  return card == nullptr ? nullptr : card->options().profile;
}

}  // namespace headroom::sim::rules
