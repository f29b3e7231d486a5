#include <ATen/native/Resize.h>
#include <c10/core/ScalarType.h>

#include "headroom/sim/device/alias.h"
#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

ScalarType floating(ScalarType type) {
  return at::isIntegralType(type, true) ? c10::get_default_dtype_as_scalartype() : type;
}

// The result for a complex tensor is new, in the plain order of dimensions.
// Source: aten/src/ATen/native/UnaryOps.cpp, unary_op_impl_with_complex_to_float_out.
Tensor real_of(const Tensor& x, ScalarType type) {
  return x.is_complex() ? contiguous(x.sizes(), x, c10::toRealValueType(type))
                        : elementwise({x}, type);
}

}  // namespace

void add_complex(Table& table) {
  for (const char* name : {"complex", "polar"})
    table.rule(name, [](const Tensor& a, const Tensor& b) {
      return elementwise({a, b}, c10::toComplexType(a.scalar_type()));
    });
  table.rule("angle", [](const Tensor& x) { return real_of(x, floating(x.scalar_type())); });
  table.rule("abs", [](const Tensor& x) { return real_of(x, x.scalar_type()); });
  // The operator without out= depends on the type: it returns a real tensor unchanged.
  table.rule("conj_physical.out", [](const Tensor& x, const Tensor& out) {
    detail::Aliases aliases(c10::DeviceType::Meta);
    const Tensor planned = elementwise({aliases.of(x)});
    if (at::native::resize_output(out, planned.sizes()))
      out.unsafeGetTensorImpl()->set_sizes_and_strides(planned.sizes(), planned.strides());
    return out;
  });
  table.elementwise({"_conj_physical"});
}

}  // namespace headroom::sim::rules
