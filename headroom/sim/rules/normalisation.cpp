#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

using Optional = std::optional<Tensor>;

// One for each row that is normalised: the other dimensions are 1.
std::vector<std::int64_t> statistics_of(const Tensor& x, std::size_t normalised) {
  auto sizes = x.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(normalised), sizes.end(), 1);
  return sizes;
}

}  // namespace

void add_normalisation(Table& table) {
  table.rule("native_layer_norm", [](const Tensor& x, IntArrayRef shape, const Optional&,
                                     const Optional&, double) {
    const auto sizes = statistics_of(x, shape.size());
    const ScalarType type = rules_now() == Rules::cuda ? accumulation_type(x.scalar_type())
                                                       : x.scalar_type();
    Tensor out = at::empty_like(x, at::MemoryFormat::Contiguous);
    Tensor mean = contiguous(sizes, x, type);
    Tensor rstd = contiguous(sizes, x, type);
    return std::tuple(out, mean, rstd);
  });
  table.rule("native_layer_norm_backward",
             [](const Tensor&, const Tensor& x, IntArrayRef, const Tensor&, const Tensor&,
                const Optional& weight, const Optional& bias, std::array<bool, 3> wanted) {
               return std::tuple(wanted[0] ? at::empty_like(x, at::MemoryFormat::Contiguous) : Tensor(),
                                 wanted[1] ? at::empty_like(*weight) : Tensor(),
                                 wanted[2] ? at::empty_like(*bias) : Tensor());
             });
}

}  // namespace headroom::sim::rules
