#include "headroom/sim/rules/layout.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>

#include "headroom/sim/detail/alias.h"
#include "headroom/sim/detail/executing.h"

namespace headroom::sim::rules {

Rules rules_now() {
  const Card* card = detail::executing.card;
  return card == nullptr ? Rules::cuda : card->rules();
}

Tensor elementwise(std::initializer_list<Tensor> inputs, std::optional<ScalarType> type) {
  detail::Aliases aliases(c10::DeviceType::Meta);
  at::TensorIteratorConfig config;
  Tensor none;
  const Tensor* on_card = nullptr;
  config.add_owned_output(none).promote_inputs_to_common_dtype(true);
  for (const Tensor& input : inputs) {
    if (detail::on_card(input) && on_card == nullptr) on_card = &input;
    config.add_owned_const_input(aliases.of(input));
  }
  if (type) config.promote_inputs_to_common_dtype(false).check_all_same_dtype(false)
                .declare_static_dtype_and_device(*type, c10::Device(c10::DeviceType::Meta));
  const Tensor meta = config.build().output();
  return at::empty_strided(meta.sizes(), meta.strides(),
                           on_card->options().dtype(meta.scalar_type()));
}

Tensor contiguous(IntArrayRef sizes, const Tensor& like, std::optional<ScalarType> type) {
  return at::empty(sizes, like.options().dtype(type.value_or(like.scalar_type())));
}

ScalarType accumulation_type(ScalarType type) {
  return at::toOpMathType(type);
}

}  // namespace headroom::sim::rules
