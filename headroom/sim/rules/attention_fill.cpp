#include "headroom/sim/rules/attention_fill.h"

#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <limits>

namespace headroom::sim::rules {
namespace {

using Scale = std::optional<double>;

struct Note {
  bool by_math = false;
  std::int64_t head_dim = 0;
};

Note unpacked(std::uint64_t number) {
  return {(number & 1) != 0, static_cast<std::int64_t>(number >> 1)};
}

template <typename T>
T value(const Tensor& tensor, std::int64_t at) {
  return tensor.const_data_ptr<T>()[at];
}

// One call as the CPU gets it: without padding.
struct CpuCall {
  Tensor q, k, v, mask;
  double dropout = 0;
  bool causal = false;
  Scale scale;

  CpuCall(const Tensor& query, const Tensor& key, const Tensor& value, const Optional& bias,
          double p, bool is_causal, Scale by, std::int64_t head_dim)
      : q(query.narrow(-1, 0, head_dim)),
        k(key.narrow(-1, 0, head_dim)),
        v(head_dim == query.size(-1) ? value : value.narrow(-1, 0, head_dim)),
        mask(bias && bias->defined() ? *bias : Tensor()),
        dropout(p),
        causal(is_causal),
        scale(by) {}

  [[nodiscard]] Optional optional_mask() const {
    return mask.defined() ? Optional(mask) : Optional();
  }
};

// LibTorch's path without a fused kernel, with this generator's random numbers: the same operators
// in the same order as at::_scaled_dot_product_attention_math.
// Source: aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.
Tensor by_math(const CpuCall& call, const at::Generator& generator) {
  if (call.dropout == 0)
    return std::get<0>(at::_scaled_dot_product_attention_math(
        call.q, call.k, call.v, call.optional_mask(), 0.0, call.causal, {}, call.scale,
        call.q.size(-3) != call.k.size(-3)));
  const ScalarType type = call.q.scalar_type();
  const bool widen = !at::globalContext().allowFP16BF16ReductionMathSDP() &&
                     (type == at::kHalf || type == at::kBFloat16);
  const auto wide = [&](const Tensor& x) { return widen ? x.to(at::kFloat) : x; };
  Tensor q = wide(call.q), k = wide(call.k), v = wide(call.v);
  const bool negative = call.scale && *call.scale < 0;
  const double root = std::sqrt(
      sdp::calculate_scale(q, negative ? Scale(-*call.scale) : call.scale).expect_float());
  q = q * (negative ? -root : root);
  Tensor mask = call.mask;
  if (call.causal) {
    const Tensor seen = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(at::kBool)).tril();
    mask = at::zeros_like(seen, q.options());
    mask.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (const std::int64_t groups = q.size(-3) / k.size(-3); groups > 1) {
    k = k.repeat_interleave(groups, -3);
    v = v.repeat_interleave(groups, -3);
  }
  Tensor weights = at::matmul(q, k.transpose(-2, -1) * root);
  if (mask.defined()) weights.add_(mask);
  weights = dropped_out(at::_safe_softmax(weights, -1), call.dropout, generator);
  return at::matmul(weights, v).to(type);
}

Tensor math_forward(const CpuCall& call) {
  const at::Generator generator = keep_random_state();
  const FromTheTop scope(false);
  return by_math(call, generator);
}

// Gradients of q, k, v and the mask: runs forward once more, with autograd.
std::array<Tensor, 4> math_backward(CpuCall call, const Tensor& gradient, std::int64_t number,
                                    bool mask_wanted) {
  const at::Generator generator = call.dropout > 0 ? random_state(number) : at::Generator();
  const FromTheTop scope(true);
  call.q = leaf(call.q), call.k = leaf(call.k), call.v = leaf(call.v);
  call.mask = leaf(call.mask, mask_wanted);
  torch::autograd::variable_list inputs{call.q, call.k, call.v};
  if (mask_wanted) inputs.push_back(call.mask);
  auto gradients = torch::autograd::grad({by_math(call, generator)}, inputs, {gradient});
  gradients.resize(4);
  return {gradients[0], gradients[1], gradients[2], gradients[3]};
}

// The gradient of a padded tensor: zeros in the padding.
Tensor padded_to(const Tensor& gradient, std::int64_t dim) {
  return gradient.size(-1) == dim ? gradient
                                  : at::constant_pad_nd(gradient, {0, dim - gradient.size(-1)}, 0);
}

struct Forward {
  Tensor out, logsumexp;  // logsumexp may be undefined
};

Forward forward(const CpuCall& call, const Note& note) {
  if (note.by_math) return {math_forward(call), {}};
  auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
      call.q, call.k, call.v, 0.0, call.causal, call.optional_mask(), call.scale);
  return {out, logsumexp};
}

std::array<Tensor, 4> backward(const CpuCall& call, const Note& note, std::int64_t number,
                               const Tensor& gradient, const Tensor& out, const Tensor& logsumexp,
                               bool mask_wanted) {
  if (note.by_math) return math_backward(call, gradient, number, mask_wanted);
  // The CPU's layout: by token.
  const Tensor sums = logsumexp.reshape({call.q.size(0), call.q.size(1), -1})
                          .narrow(2, 0, call.q.size(2))
                          .transpose(1, 2)
                          .contiguous()
                          .transpose(1, 2);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, call.q, call.k, call.v, out, sums, 0.0, call.causal, call.optional_mask(),
      call.scale);
  return {dq, dk, dv, Tensor()};
}

Tensor filled(IntArrayRef sizes, ScalarType type, std::uint64_t first, std::uint64_t second) {
  Tensor numbers = at::empty(sizes, type);
  auto* const data = static_cast<std::uint64_t*>(numbers.mutable_data_ptr());
  data[0] = first;
  if (numbers.numel() > 1) data[1] = second;
  return numbers;
}

FusedResults flash(const Tensor& q, const Tensor& k, const Tensor& v, double dropout, bool causal,
                   bool, Scale scale) {
  const std::uint64_t packed = packed_note(q, dropout);
  const Note note = unpacked(packed);
  auto [out, logsumexp] =
      forward(CpuCall(q, k, v, {}, dropout, causal, scale, note.head_dim), note);
  const auto number = static_cast<std::uint64_t>(last_random_state());
  return {padded_to(out, q.size(-1)),
          logsumexp,
          {},
          {},
          q.size(2),
          k.size(2),
          filled({2}, at::kUInt64, number, packed),
          {},
          {}};
}

auto flash_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const Tensor& logsumexp, const Tensor&, const Tensor&,
                    c10::SymInt, c10::SymInt, double dropout, bool causal, const Tensor& seed,
                    const Tensor&, Scale scale) {
  const Note note = unpacked(value<std::uint64_t>(seed, 1));
  const auto number = static_cast<std::int64_t>(value<std::uint64_t>(seed, 0));
  const CpuCall call(q, k, v, {}, dropout, causal, scale, note.head_dim);
  const auto all = backward(call, note, number, gradient.narrow(-1, 0, note.head_dim),
                            out.narrow(-1, 0, note.head_dim), logsumexp, false);
  return std::tuple(padded_to(all[0], q.size(-1)), padded_to(all[1], q.size(-1)),
                    padded_to(all[2], q.size(-1)));
}

Tensor padded_statistics(const Tensor& logsumexp, bool wanted) {
  if (!wanted || !logsumexp.defined()) return {};
  const std::int64_t tokens = logsumexp.size(2);
  return at::constant_pad_nd(logsumexp, {0, (tokens + 31) / 32 * 32 - tokens}, 0);
}

auto efficient(const Tensor& q, const Tensor& k, const Tensor& v, const Optional& mask,
               bool statistics, double dropout, bool causal, Scale scale) {
  const std::uint64_t packed = packed_note(q, dropout);
  const Note note = unpacked(packed);
  auto [out, logsumexp] = forward(CpuCall(q, k, v, mask, dropout, causal, scale, q.size(-1)), note);
  return std::tuple(out, padded_statistics(logsumexp, statistics),
                    filled({}, at::kLong, static_cast<std::uint64_t>(last_random_state()), 0),
                    filled({}, at::kLong, packed, 0));
}

auto efficient_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask, const Tensor& out, const Tensor& logsumexp,
                        const Tensor& seed, const Tensor& offset, double dropout,
                        std::array<bool, 4> wanted, bool causal, Scale scale) {
  if (!gradient.defined()) return std::tuple<Tensor, Tensor, Tensor, Tensor>();
  const Note note = unpacked(static_cast<std::uint64_t>(value<std::int64_t>(offset, 0)));
  const CpuCall call(q, k, v, mask, dropout, causal, scale, q.size(-1));
  const auto all = backward(call, note, value<std::int64_t>(seed, 0), gradient, out, logsumexp,
                            wanted[3] && mask.defined());
  return std::tuple(all[0], all[1], all[2], all[3]);
}

FusedResults cudnn(const Tensor& q, const Tensor& k, const Tensor& v, const Optional& mask, bool,
                   double dropout, bool causal, bool, Scale scale) {
  const std::uint64_t packed = packed_note(q, dropout);
  const Note note = unpacked(packed);
  auto [out, logsumexp] = forward(CpuCall(q, k, v, mask, dropout, causal, scale, q.size(-1)), note);
  return {out,
          logsumexp.defined() ? logsumexp.unsqueeze(-1) : Tensor(),
          {},
          {},
          q.size(2),
          k.size(2),
          filled({}, at::kLong, static_cast<std::uint64_t>(last_random_state()), 0),
          filled({}, at::kLong, packed, 0),
          {}};
}

auto cudnn_backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& out, const Tensor& logsumexp, const Tensor& seed,
                    const Tensor& offset, const Tensor& mask, const Tensor&, const Tensor&,
                    c10::SymInt, c10::SymInt, double dropout, bool causal, Scale scale) {
  const Note note = unpacked(static_cast<std::uint64_t>(value<std::int64_t>(offset, 0)));
  const CpuCall call(q, k, v, mask, dropout, causal, scale, q.size(-1));
  const auto all =
      backward(call, note, value<std::int64_t>(seed, 0), gradient, out, logsumexp, false);
  return std::tuple(all[0], all[1], all[2]);
}

}  // namespace

AsOnCpu& AsOnCpuScope::current() {
  thread_local AsOnCpu note;
  return note;
}

std::uint64_t packed_note(const Tensor& q, double dropout) {
  const AsOnCpu& call = AsOnCpuScope::current();
  const bool by_math = dropout > 0 || (call.known && call.by_math);
  const std::int64_t dim = call.known && call.head_dim > 0 ? call.head_dim : q.size(-1);
  return (static_cast<std::uint64_t>(dim) << 1) | static_cast<std::uint64_t>(by_math);
}

void add_attention_fills(Table& table) {
  table.fill("_scaled_dot_product_flash_attention", flash);
  table.fill("_scaled_dot_product_flash_attention_backward", flash_backward);
  table.fill("_scaled_dot_product_efficient_attention", efficient);
  table.fill("_scaled_dot_product_efficient_attention_backward", efficient_backward);
  table.fill("_scaled_dot_product_cudnn_attention", cudnn);
  table.fill("_scaled_dot_product_cudnn_attention_backward", cudnn_backward);
}

}  // namespace headroom::sim::rules
