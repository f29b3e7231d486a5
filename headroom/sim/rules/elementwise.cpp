#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

void add_binary(Table& table) {
  for (const char* name : {"__lshift__.Tensor", "__rshift__.Tensor", "floor_divide"})
    table.rule(name, [](const Tensor& a, const Tensor& b) { return elementwise({a, b}); });
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
  for (const char* name : {"logical_and", "logical_or", "logical_xor"})
    table.rule(name, [](const Tensor& a, const Tensor& b) {
      return elementwise({a, b}, at::kBool);
    });
}

}  // namespace

void add_elementwise(Table& table) {
  add_binary(table);
  for (const char* name : {"isnan", "logical_not"})
    table.rule(name, [](const Tensor& x) { return elementwise({x}, at::kBool); });
  using Value = std::optional<double>;
  table.rule("nan_to_num", [](const Tensor& x, Value, Value, Value) { return elementwise({x}); });
  table.rule("mvlgamma", [](const Tensor& x, std::int64_t) {
    return elementwise({x}, at::isIntegralType(x.scalar_type(), true)
                                ? c10::get_default_dtype_as_scalartype()
                                : x.scalar_type());
  });
  table.rule("frexp.Tensor", [](const Tensor& x) {
    return std::tuple(elementwise({x}), elementwise({x}, at::kInt));
  });
  table.rule("glu_jvp", [](const Tensor& glu, const Tensor&, const Tensor&, std::int64_t) {
    return like(glu);
  });
  table.rule("glu_backward_jvp",
             [](const Tensor& gradient, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                std::int64_t) { return contiguous(gradient); });
  // Scales the kept elements of a mask; only CUDA has it.
  table.rule("_masked_scale", [](const Tensor& x, const Tensor&, double) { return like(x); });
  table.fill("_masked_scale", [](const Tensor& x, const Tensor& mask, double scale) {
    return x.mul(mask.to(x.scalar_type())).mul_(scale);
  });
}

}  // namespace headroom::sim::rules
