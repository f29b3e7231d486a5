#include "headroom/sim/rules/families.h"
#include "headroom/sim/rules/layout.h"

namespace headroom::sim::rules {
namespace {

using Optional = std::optional<Tensor>;

auto forward(const Tensor& q, const Tensor& k, const Tensor& v, const Optional&, double, bool, bool,
             std::optional<double>) {
  const auto options = q.options();
  Tensor out =
      at::empty({q.size(0), q.size(2), q.size(1), v.size(3)}, options).transpose(1, 2);
  Tensor logsumexp = at::empty({q.size(0), q.size(1), q.size(2)}, options.dtype(at::kFloat));
  Tensor seed = at::empty({}, options.dtype(at::kLong));
  Tensor offset = at::empty({}, options.dtype(at::kLong));
  return std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor,
                    Tensor>{out, logsumexp, {}, {}, q.size(2), k.size(2), seed, offset, {}};
}

auto backward(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
              std::array<bool, 4>, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
              c10::SymInt, c10::SymInt, double, bool, const Tensor&, const Tensor&,
              std::optional<double>) {
  return std::tuple<Tensor, Tensor, Tensor, Tensor>{at::empty_like(q), at::empty_like(k),
                                                    at::empty_like(v), {}};
}

auto fill_forward(const Tensor& q, const Tensor& k, const Tensor& v, const Optional&,
                  double dropout, bool causal, bool, std::optional<double> scale) {
  auto [out, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, {}, scale);
  return std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor,
                    Tensor>{out, logsumexp, {}, {}, q.size(2), k.size(2), {}, {}, {}};
}

auto fill_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor&, std::array<bool, 4>, const Tensor& out, const Tensor& logsumexp,
                   const Tensor&, const Tensor&, c10::SymInt, c10::SymInt, double dropout,
                   bool causal, const Tensor&, const Tensor&, std::optional<double> scale) {
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, q, k, v, out, logsumexp, dropout, causal, {}, scale);
  return std::tuple<Tensor, Tensor, Tensor, Tensor>{dq, dk, dv, {}};
}

}  // namespace

void add_attention(Table& table) {
  table.rule("_scaled_dot_product_fused_attention_overrideable", forward);
  table.rule("_scaled_dot_product_fused_attention_overrideable_backward", backward);
  table.fill("_scaled_dot_product_fused_attention_overrideable", fill_forward);
  table.fill("_scaled_dot_product_fused_attention_overrideable_backward", fill_backward);
}

}  // namespace headroom::sim::rules
