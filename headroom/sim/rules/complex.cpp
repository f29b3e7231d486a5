#include <c10/core/ScalarType.h>

#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

ScalarType floating(ScalarType type) {
  return at::isIntegralType(type, true) ? c10::get_default_dtype_as_scalartype() : type;
}

}  // namespace

void add_complex(Table& table) {
  for (const char* name : {"complex", "polar"})
    table.rule(name, [](const Tensor& a, const Tensor& b) {
      return elementwise({a, b}, c10::toComplexType(a.scalar_type()));
    });
  table.rule("angle", [](const Tensor& x) {
    return elementwise({x}, c10::toRealValueType(floating(x.scalar_type())));
  });
  table.rule("abs", [](const Tensor& x) {
    return elementwise({x}, c10::toRealValueType(x.scalar_type()));
  });
  table.rule("_conj_physical", [](const Tensor& x) { return elementwise({x}); });
}

}  // namespace headroom::sim::rules
