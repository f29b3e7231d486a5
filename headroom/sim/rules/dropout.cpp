#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {

void add_dropout(Table& table) {
  table.rule("native_dropout", [](const Tensor& x, double, std::optional<bool>) {
    const ScalarType mask = rules_now() == Rules::cuda ? at::kBool : x.scalar_type();
    return std::tuple(at::empty_like(x), at::empty_like(x, x.options().dtype(mask)));
  });
  table.differs(
      "native_dropout",
      [](const Tensor& x, double, std::optional<bool>) {
        return x.numel() * (1 - static_cast<std::int64_t>(x.element_size()));
      },
      "CUDA keeps a mask of one byte an element, the CPU one of the input's type",
      "aten/src/ATen/native/cuda/Dropout.cu, aten/src/ATen/native/Dropout.cpp");
  table.rule("native_dropout_backward",
             [](const Tensor& gradient, const Tensor&, double) { return at::empty_like(gradient); });
}

}  // namespace headroom::sim::rules
