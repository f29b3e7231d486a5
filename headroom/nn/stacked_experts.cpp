#include "headroom/nn/stacked_experts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "headroom/nn/detail/absent_weight.h"

namespace headroom::nn {

using at::Tensor;

StackedExperts::StackedExperts(std::int64_t experts, std::int64_t width, std::int64_t inner,
                               Activation activation)
    : experts_(experts),
      inner_(inner),
      activation_(std::move(activation)),
      gate_up_(
          register_parameter("gate_up_proj", detail::linear_weight({experts, 2 * inner, width}))),
      down_(register_parameter("down_proj", detail::linear_weight({experts, width, inner}))) {}

Tensor StackedExperts::operator()(const Tensor& states, const Tensor& chosen,
                                  const Tensor& shares) const {
  const std::int64_t each = chosen.size(-1);
  const auto [expert, order] = at::sort(chosen.reshape(-1));
  const Tensor sorted = at::index(states, {at::floor_divide(order, each)});
  const Tensor sorted_shares = at::index(shares.reshape(-1), {order});
  const Tensor ends = counted(expert, experts_).cumsum(0, at::kInt);
  Tensor out = through_experts(sorted, ends);
  out = out * sorted_shares.unsqueeze(-1);  // in float, as the shares are
  Tensor back = at::empty_like(order);
  back.index_put_({order}, at::arange(order.size(0), order.options()));
  out = at::index(out, {back});
  return out.view({-1, each, states.size(1)}).sum(1).to(states.scalar_type());
}

Tensor StackedExperts::through_experts(const Tensor& sorted, const Tensor& ends) const {
  const auto product = [&](const Tensor& x, const Tensor& weights) {
    return at::_grouped_mm(x.to(weights.scalar_type()), weights.transpose(-2, -1), ends);
  };
  const auto gated = [&](const Tensor& both) {
    const std::vector<Tensor> halves = both.chunk(2, -1);
    return activation_(halves[0]) * halves[1];
  };
  Tensor inner = product(sorted, gate_up_);
  inner = gated(inner);
  return product(inner, down_);
}

std::vector<std::pair<std::string, Tensor>> StackedExperts::by_expert(const Tensor& gate_up,
                                                                      const Tensor& down) const {
  const at::NoGradGuard no_grad;  // they are to be written
  std::vector<std::pair<std::string, Tensor>> parts;
  for (std::int64_t i = 0; i < experts_; ++i) {
    const std::string name = std::to_string(i);
    parts.emplace_back(name + ".w1.weight", gate_up[i].slice(0, 0, inner_));
    parts.emplace_back(name + ".w2.weight", down[i]);
    parts.emplace_back(name + ".w3.weight", gate_up[i].slice(0, inner_));
  }
  return parts;
}

Tensor counted(const Tensor& numbers, std::int64_t count) {
  const Tensor counted = numbers.to(numbers.is_cpu() ? at::kFloat : at::kInt);
  return at::histc(counted, count, 0, count - 1);
}

}  // namespace headroom::nn
