#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

void add_binary(Table& table) {
  table.elementwise({"__lshift__.Tensor", "__rshift__.Tensor", "floor_divide", "nan_to_num"});
  table.elementwise({"logical_and", "logical_or", "logical_xor", "logical_not", "isnan"},
                    at::kBool);
  table.rule("rsub.Tensor", [](const Tensor& a, const Tensor& b, const Scalar&) {
    return elementwise({b, a});
  });
  for (const char* name : {"__lshift__.Scalar", "__rshift__.Scalar"})
    table.rule(name, [](const Tensor& a, const Scalar& b) {
      return elementwise({a}, at::result_type(a, b));
    });
  table.rule("remainder.Scalar_Tensor", [](const Scalar& a, const Tensor& b) {
    return elementwise({b}, at::result_type(a, b));
  });
}

}  // namespace

void add_elementwise(Table& table) {
  add_binary(table);
  table.rule("mvlgamma", [](const Tensor& x, std::int64_t) {
    return elementwise({x}, at::isIntegralType(x.scalar_type(), true)
                                ? c10::get_default_dtype_as_scalartype()
                                : x.scalar_type());
  });
  table.rule("frexp.Tensor", [](const Tensor& x) {
    return std::tuple(elementwise({x}), elementwise({x}, at::kInt));
  });
  table.contiguous_as(0, {"glu_backward_jvp"});
  // _masked_scale scales the kept elements of a mask; only CUDA has it.
  table.like(0, {"glu_jvp", "_masked_scale"});
  table.fill("_masked_scale", [](const Tensor& x, const Tensor& mask, double scale) {
    return x.mul(mask.to(x.scalar_type())).mul_(scale);
  });
}

}  // namespace headroom::sim::rules
