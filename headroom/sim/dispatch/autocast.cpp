#include "headroom/sim/dispatch/registration.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <string_view>
#include <unordered_map>

#include "headroom/libtorch/tensors_in.h"
#include "headroom/sim/device/alias.h"
#include "headroom/sim/device/cards.h"
#include "headroom/sim/rules/table.h"

namespace headroom::sim::detail {
namespace {

using at::ScalarType;
using at::Tensor;
using c10::IValue;
using torch::jit::Stack;
constexpr c10::DeviceType kSim = c10::DeviceType::PrivateUse1;

enum class Policy : std::uint8_t {
  none,          // not on the list: the operators it is composed of may be
  lower,         // every input in autocast's type
  fp32,          // every input in float
  set_dtype,     // the argument dtype becomes float, unless it is given
  append_dtype,  // the overload with dtype, in float
  promote,       // every input in the widest of the inputs' types
  banned,
};

struct Policies {
  Policy cuda = Policy::none;
  Policy cpu = Policy::none;
};
using ByOperator = std::unordered_map<c10::OperatorName, Policies>;

using rules::in_aten;

// ---- CUDA's lists: from LibTorch's own header ----

// The header's macros write conv_transpose2d.input as "conv_transpose2d, input".
c10::OperatorName from_macro(std::string_view text) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) return in_aten(text);
  return in_aten(std::string(text.substr(0, comma)) + "." + std::string(text.substr(comma + 2)));
}

void add_cuda(ByOperator& all) {
#define HEADROOM_LOWER(...) all[from_macro(#__VA_ARGS__)].cuda = Policy::lower;
#define HEADROOM_FP32(...) all[from_macro(#__VA_ARGS__)].cuda = Policy::fp32;
#define HEADROOM_SET_DTYPE(...) all[from_macro(#__VA_ARGS__)].cuda = Policy::set_dtype;
#define HEADROOM_PROMOTE(...) all[from_macro(#__VA_ARGS__)].cuda = Policy::promote;
  AT_FORALL_LOWER_PRECISION_FP(HEADROOM_LOWER)
  AT_FORALL_FP32(HEADROOM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(HEADROOM_SET_DTYPE)
  AT_FORALL_PROMOTE(HEADROOM_PROMOTE)
#undef HEADROOM_LOWER
#undef HEADROOM_FP32
#undef HEADROOM_SET_DTYPE
#undef HEADROOM_PROMOTE
  for (const char* name : {"norm.Scalar", "norm.ScalarOpt_dim", "norm.names_ScalarOpt_dim"})
    all[in_aten(name)].cuda = Policy::append_dtype;
  // CUDA copies the weights into one buffer of the lower type at each call; here each weight is
  // cast once, on its own. Source: aten/src/ATen/cudnn/AutocastRNN.cpp.
  for (const char* name : {"_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose"})
    all[in_aten(name)].cuda = Policy::lower;
  all[in_aten("binary_cross_entropy")].cuda = Policy::banned;
}

// ---- The CPU's lists, from LibTorch's registrations ----

// All of them run in float, but for those named here.
// Source: aten/src/ATen/autocast_mode.cpp, TORCH_LIBRARY_IMPL(aten, AutocastCPU, m).
void add_cpu(ByOperator& all) {
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::AutocastCPU))
    if (name.name.starts_with("aten::")) all[name].cpu = Policy::fp32;
  const auto lower = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) all[in_aten(name)].cpu = Policy::lower;
  };
  lower({"conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding"});
  lower({"conv_tbc", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
         "_convolution.deprecated"});
  lower({"mm", "bmm", "matmul", "linear", "addmm", "addbmm", "baddbmm", "linalg_vecdot", "prelu"});
  lower({"_addmm_activation", "mkldnn_rnn_layer", "scaled_dot_product_attention",
         "_native_multi_head_attention"});
  for (const char* name : {"stack", "cat", "index_copy", "index_copy.dimname"})
    all[in_aten(name)].cpu = Policy::promote;
}

const ByOperator& policies() {
  static const ByOperator& all = *[] {
    auto* made = new ByOperator;
    add_cuda(*made);
    add_cpu(*made);
    return made;
  }();
  return all;
}

// ---- Applying a policy to the arguments on the stack ----

Rules rules_of(const Stack& stack, std::size_t first) {
  int card = -1;
  for (std::size_t i = first; i < stack.size() && card < 0; ++i)
    libtorch::for_each_tensor(stack[i], [&](const Tensor& tensor) {
      if (card < 0 && on_card(tensor)) card = tensor.device().index();
    });
  return card < 0 ? Rules::cuda : card_at(card).rules();
}

void cast(IValue& value, ScalarType type) {
  if (value.isTensor()) {
    value = at::autocast::cached_cast(type, value.toTensor(), kSim);
  } else if (value.isTensorList()) {
    value = at::autocast::cached_cast(type, at::TensorList(value.toTensorVector()), kSim);
  }
}

void cast_all(Stack& stack, std::size_t first, ScalarType type) {
  for (std::size_t i = first; i < stack.size(); ++i) cast(stack[i], type);
}

ScalarType widest(const Stack& stack, std::size_t first) {
  ScalarType type = at::autocast::get_autocast_dtype(kSim);
  for (std::size_t i = first; i < stack.size(); ++i)
    libtorch::for_each_tensor(stack[i], [&](const Tensor& tensor) {
      type = at::autocast::prioritize(type, tensor, kSim);
    });
  return type;
}

bool first_is_eligible(const Stack& stack, std::size_t first) {
  return stack[first].isTensor() && at::autocast::is_eligible(stack[first].toTensor(), kSim);
}

void set_dtype(const c10::FunctionSchema& schema, Stack& stack, std::size_t first) {
  if (!first_is_eligible(stack, first)) return;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i)
    if (schema.arguments()[i].name() == "dtype" && stack[first + i].isNone())
      stack[first + i] = static_cast<std::int64_t>(at::kFloat);
}

c10::OperatorHandle with_dtype(const c10::OperatorHandle& op, Stack& stack, std::size_t first) {
  const std::string& overload = op.operator_name().overload_name;
  const bool cast_it = first_is_eligible(stack, first);
  const ScalarType type = cast_it ? at::kFloat : stack[first].toTensor().scalar_type();
  stack.emplace_back(static_cast<std::int64_t>(type));
  return c10::Dispatcher::singleton().findSchemaOrThrow(
      "aten::norm", overload == "Scalar" ? "ScalarOpt_dtype" : (overload + "_dtype").c_str());
}

[[noreturn]] void refuse_binary_cross_entropy() {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
              "autocast. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss instead of a "
              "sigmoid and a binary cross entropy: they are safe to autocast.");
}

// Skips to the keys behind autocast's, which stays on: the operators that a composite one is made
// of have policies of their own.
void pass_by(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet after(c10::DispatchKeySet::FULL_AFTER,
                                  c10::DispatchKey::AutocastPrivateUse1);
  op.redispatchBoxed(keys & after, stack);
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const std::size_t first = stack->size() - op.schema().arguments().size();
  const Policies& both = policies().at(op.operator_name());
  const Policy policy = rules_of(*stack, first) == Rules::cpu ? both.cpu : both.cuda;
  if (policy == Policy::none) return pass_by(op, keys, stack);
  const c10::impl::ExcludeDispatchKeyGuard off(c10::DispatchKey::AutocastPrivateUse1);
  switch (policy) {
    case Policy::none:
      break;  // see above
    case Policy::lower:
      cast_all(*stack, first, at::autocast::get_autocast_dtype(kSim));
      break;
    case Policy::fp32:
      cast_all(*stack, first, at::kFloat);
      break;
    case Policy::set_dtype:
      set_dtype(op.schema(), *stack, first);
      break;
    case Policy::append_dtype:
      with_dtype(op, *stack, first).callBoxed(stack);
      return;
    case Policy::promote:
      cast_all(*stack, first, widest(*stack, first));
      break;
    case Policy::banned:
      refuse_binary_cross_entropy();
  }
  op.callBoxed(stack);
}

}  // namespace

void register_autocast() {
  constexpr auto kAutocast = c10::DispatchKey::AutocastPrivateUse1;
  library(kAutocast, "_").fallback(torch::CppFunction::makeFallthrough());
  torch::Library& aten = library(kAutocast);
  for (const auto& [name, both] : policies()) {
    if (!c10::Dispatcher::singleton().findSchema(name)) continue;
    const std::string full = c10::toString(name);
    aten.impl(full.substr(6).c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
  }
}

}  // namespace headroom::sim::detail
