#include "tests/peers/replaced.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "headroom/gpu/attention_memory.h"
#include "headroom/sim/rules/results.h"
#include "headroom/sim/rules/rnn.h"

namespace headroom::nets {
namespace {

using at::Tensor;
using Arguments = at::ArrayRef<c10::IValue>;

constexpr std::int64_t kFloatBytes = 4, kLongBytes = 8;

std::int64_t bytes_of(const Tensor& x) {
  return x.numel() * static_cast<std::int64_t>(x.element_size());
}

bool is_half(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
}

bool is_learnt(std::initializer_list<at::TensorList> all) {
  if (!at::GradMode::is_enabled()) return false;
  return std::any_of(all.begin(), all.end(), [](at::TensorList list) {
    return std::any_of(list.begin(), list.end(), [](const Tensor& x) { return x.requires_grad(); });
  });
}

// ---- Attention ----

struct Attention {
  Tensor q, k, v;
  std::int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2);
  std::int64_t out =
      batch * heads * queries * v.size(3) * static_cast<std::int64_t>(q.element_size());
  std::int64_t statistic =
      batch * heads * queries * kFloatBytes;  // a float for each query and head
  bool is_learnt = nets::is_learnt({{q, k, v}});

  [[nodiscard]] std::vector<std::int64_t> gradients() const {
    return {bytes_of(q), bytes_of(k), bytes_of(v)};
  }
  [[nodiscard]] std::int64_t all_gradients() const {
    return bytes_of(q) + bytes_of(k) + bytes_of(v);
  }
};

std::int64_t rounded_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// Assumes queries laid out by token, as a transformer's projection leaves them: then so are the
// output and its gradient, and no kernel copies them.
OnCuda flash(const Attention& a) {
  const std::int64_t random_state = 2 * kLongBytes + kLongBytes;  // seed and offset, and one unused
  const std::int64_t tokens = rounded_up(a.queries, 128), dim = rounded_up(a.q.size(3), 32);
  const std::int64_t dots = a.batch * a.heads * tokens * kFloatBytes;
  const std::int64_t sums_of_dq = a.batch * a.heads * tokens * dim * kFloatBytes;
  OnCuda all;
  all.forward = {{a.out}, a.out + a.statistic + random_state};
  all.saved = a.statistic + random_state;
  all.backward = {a.gradients(), a.all_gradients() + dots + sums_of_dq};
  return all;
}

OnCuda memory_efficient(const Attention& a) {
  // Statistics only for backward, for a multiple of 32 queries.
  const std::int64_t statistics =
      a.is_learnt ? a.batch * a.heads * rounded_up(a.queries, 32) * kFloatBytes : 0;
  const std::int64_t random_state = 2 * kLongBytes;  // seed and offset
  const std::int64_t workspace =
      gpu::efficient_workspace({.half = at::isReducedFloatingType(a.q.scalar_type()),
                                .chip = gpu::chip_number(sim::rules::running_profile()),
                                .batch = a.batch,
                                .heads = a.heads,
                                .queries = a.queries,
                                .keys = a.k.size(2),
                                .head_dim = a.q.size(3),
                                .value_dim = a.v.size(3)});
  // For float, tensor operators compute delta: the product of the output and its gradient, its
  // sums, and a copy of the sums in the kernel's order. Beside the kernel only the copy remains.
  const std::int64_t delta = std::max(a.out + 2 * a.statistic, a.statistic + workspace);
  OnCuda all;
  all.forward = {{a.out}, a.out + statistics + random_state};
  all.saved = statistics + random_state;
  all.backward = {a.gradients(), a.all_gradients() + delta};
  return all;
}

std::optional<OnCuda> attention(Arguments arguments) {
  const Attention a{arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toTensor()};
  const std::int64_t dim = a.q.size(3);
  const bool is_plain = arguments[3].isNone() && arguments[4].toDouble() == 0 && dim % 8 == 0 &&
                        dim <= 128 && a.v.size(3) == dim && a.k.size(1) == a.heads &&
                        a.q.stride(1) < a.q.stride(2);
  if (!is_plain || !(is_half(a.q) || a.q.scalar_type() == at::kFloat)) return {};
  OnCuda all = is_half(a.q) ? flash(a) : memory_efficient(a);
  if (!a.is_learnt) all.saved = 0;
  if (a.is_learnt) all.saved_results = {0};
  return all;
}

// ---- Recurrent networks ----

struct Recurrent {
  Tensor x;
  std::vector<Tensor> states, weights;
  sim::rules::RnnShape shape;
  bool train = false, batch_first = false;
};

// Input, states, weights, biases, layers, dropout, train, bidirectional, batch_first.
Recurrent recurrent(sim::rules::RnnMode mode, Arguments arguments) {
  Recurrent r{.x = arguments[0].toTensor(), .weights = arguments[2].toTensorVector()};
  r.states = arguments[1].isTensor() ? std::vector{arguments[1].toTensor()}
                                     : arguments[1].toTensorVector();
  r.train = arguments[6].toBool();
  r.batch_first = arguments[8].toBool();
  const std::int64_t first = r.batch_first ? 1 : 0;
  r.shape = {.mode = mode,
             .input = r.x.size(2),
             .hidden = r.states.back().size(2),
             .layers = arguments[4].toInt(),
             .directions = arguments[7].toBool() ? 2 : 1,
             .steps = r.x.size(first),
             .batch = r.x.size(1 - first)};
  r.shape.rows = r.shape.steps * r.shape.batch;
  return r;
}

// One operator runs all steps and layers. It works on input and gradients by step (copies of them
// if they come by sequence), on the weights in place, and keeps a reserve between the passes.
// Backward makes zeros for the gradients of the last states, which a network that only reads the
// output does not have.
OnCuda by_cudnn(const Recurrent& r) {
  const at::ScalarType type = r.x.scalar_type();
  const std::int64_t output = r.shape.rows * r.shape.directions * r.shape.output() *
                              static_cast<std::int64_t>(r.x.element_size());
  const std::int64_t copy_of_x = r.batch_first ? bytes_of(r.x) : 0;
  const std::int64_t copy_of_gradient = r.batch_first ? output : 0;
  const std::int64_t workspace = sim::rules::workspace_bytes(r.shape, type);
  const std::int64_t reserve = r.train ? sim::rules::reserve_bytes(r.shape, type) : 0;
  std::int64_t states = 0, weights = 0;
  OnCuda all;
  all.forward.results = {output};
  for (const Tensor& state : r.states) {
    all.forward.results.push_back(bytes_of(state));
    states += bytes_of(state);
  }
  all.forward.most = copy_of_x + output + states + reserve + workspace;
  // All in one buffer, which lives as long as any of them.
  for (const Tensor& weight : r.weights) {
    all.backward.results.push_back(bytes_of(weight));
    weights += bytes_of(weight);
  }
  all.backward.results.push_back(bytes_of(r.x));
  const std::int64_t gradients = bytes_of(r.x) + 2 * states;  // and zeros for the last states'
  all.backward.most = gradients + copy_of_x + workspace + std::max(copy_of_gradient, weights);
  all.saved = reserve;
  all.saved_results = {0};
  all.saved_arguments = {0, 1};
  return all;
}

template <sim::rules::RnnMode mode>
std::optional<OnCuda> recurrent_network(Arguments arguments) {
  const Recurrent r = recurrent(mode, arguments);
  const bool has_biases = arguments[3].toBool(), drops = arguments[5].toDouble() > 0;
  // The row covers training: all parameters learn, nothing is dropped or projected.
  if (!has_biases || drops || r.x.size(0) == 1 || r.x.size(1) == 1 ||
      r.states.front().size(2) != r.shape.hidden || !is_learnt({{r.x}}) || !is_learnt({r.weights}))
    return {};
  return by_cudnn(r);
}

// ---- Cross entropy under autocast ----

// The CPU's list has the whole function, CUDA's only its last part. The CPU takes the softmax of
// floats; CUDA takes the softmax of the logits as they are, and converts it to float for the loss.
std::optional<OnCuda> cross_entropy(Arguments arguments) {
  const Tensor logits = arguments[0].toTensor(), target = arguments[1].toTensor();
  constexpr auto kSim = c10::DeviceType::PrivateUse1;
  const bool is_mean_or_sum = arguments[3].toInt() != at::Reduction::None;
  if (!at::autocast::is_autocast_enabled(kSim) || !is_half(logits) || !is_mean_or_sum ||
      arguments[2].isTensor() || target.sizes() == logits.sizes() || arguments[5].toDouble() > 0)
    return {};
  const std::int64_t softmax = bytes_of(logits), in_float = logits.numel() * kFloatBytes;
  const std::int64_t loss = kFloatBytes, total_weight = kFloatBytes;
  OnCuda all;
  all.forward = {{loss}, softmax + in_float + loss + total_weight};
  if (is_learnt({{logits}})) all.saved = softmax + in_float + total_weight;
  // The floats' gradient lives beside all saved tensors; the floats are gone when it is cast back.
  all.backward = {{softmax}, in_float};
  return all;
}

// ---- All of them ----

constexpr const char* kCudnn =
    "CUDA runs _cudnn_rnn for all steps and layers, the CPU an operator for each layer of an LSTM "
    "and the products of each step otherwise";
constexpr const char* kCudnnSource = "aten/src/ATen/native/cudnn/RNN.cpp; rnn.h for the reserve";

const Replaced kAll[] = {
    {"scaled_dot_product_attention", attention,
     "CUDA runs flash attention for half precision and memory-efficient attention for float, the "
     "CPU _scaled_dot_product_flash_attention_for_cpu",
     "aten/src/ATen/native/transformers/cuda/attention.cu, attention_backward.cu, "
     "flash_attn/flash_api.cpp; ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h"},
    {"gru.input", recurrent_network<sim::rules::RnnMode::gru>, kCudnn, kCudnnSource},
    {"lstm.input", recurrent_network<sim::rules::RnnMode::lstm>, kCudnn, kCudnnSource},
    {"cross_entropy_loss", cross_entropy,
     "autocast makes floats of the logits on the CPU, on CUDA of their softmax",
     "ATen/autocast_mode.h, AT_FORALL_FP32 (nll_loss, not cross_entropy_loss); "
     "aten/src/ATen/autocast_mode.cpp, AutocastCPU; aten/src/ATen/native/LossNLL.cpp"},
};

}  // namespace

std::span<const Replaced> replaced() {
  return kAll;
}

}  // namespace headroom::nets
