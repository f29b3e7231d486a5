#include "headroom/sim/rules/families.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "headroom/sim/rules/results.h"

namespace headroom::sim::rules {
namespace {

constexpr Family kFamilies[] = {
    {"attention", add_attention},
    {"batch_norm", add_batch_norm},
    {"complex", add_complex},
    {"convolution", add_convolution},
    {"dropout", add_dropout},
    {"elementwise", add_elementwise},
    {"embedding", add_embedding},
    {"fft", add_fft},
    {"half_precision", add_half_precision},
    {"identity", add_identity},
    {"indexing", add_indexing},
    {"loss", add_loss},
    {"matrix_decompositions", add_matrix_decompositions},
    {"matrix_products", add_matrix_products},
    {"normalisation", add_normalisation},
    {"optimizers", add_optimizers},
    {"padding", add_padding},
    {"pointwise", add_pointwise},
    {"pooling", add_pooling},
    {"quantise", add_quantise},
    {"random", add_random},
    {"reductions", add_reductions},
    {"refused_layouts", add_refused_layouts},
    {"rnn", add_rnn},
    {"sorting", add_sorting},
    {"sync_batch_norm", add_sync_batch_norm},
};

class Boxed final : public c10::OperatorKernel {
 public:
  explicit Boxed(Table::Make make) : make_(std::move(make)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const std::size_t arguments = op.schema().arguments().size();
    std::vector<Tensor> results = make_(torch::jit::last(*stack, arguments));
    torch::jit::drop(*stack, arguments);
    for (Tensor& result : results) stack->emplace_back(std::move(result));
  }

 private:
  Table::Make make_;
};

}  // namespace

c10::OperatorName in_aten(std::string_view name) {
  const std::size_t dot = name.find('.');
  return {"aten::" + std::string(name.substr(0, dot)),
          dot == std::string_view::npos ? "" : std::string(name.substr(dot + 1))};
}

void Table::rules_of(std::initializer_list<const char*> names, const Make& make) {
  for (const char* name : names) {
    const auto op = c10::Dispatcher::singleton().findSchema(in_aten(name));
    if (!op) continue;  // of another version of LibTorch
    at(name).rule = {c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Boxed>(make)),
                     op->schema().arguments().size()};
  }
}

void Table::contiguous_as(std::size_t argument, std::initializer_list<const char*> names) {
  rules_of(names, [=](Arguments all) { return std::vector{contiguous(all[argument].toTensor())}; });
}

void Table::like(std::size_t argument, std::initializer_list<const char*> names) {
  rules_of(names,
           [=](Arguments all) { return std::vector{rules::like(all[argument].toTensor())}; });
}

void Table::elementwise(std::initializer_list<const char*> names, OptionalType type) {
  rules_of(names, [=](Arguments all) {
    std::vector<Tensor> inputs;
    for (const c10::IValue& argument : all)
      if (argument.isTensor()) inputs.push_back(argument.toTensor());
    return std::vector{rules::elementwise(inputs, type)};
  });
}

std::span<const Family> families() {
  return kFamilies;
}

const Table& table() {
  static const Table& all = *[] {
    auto* made = new Table;
    for (const Family& family : families()) family.add(*made);
    return made;
  }();
  return all;
}

}  // namespace headroom::sim::rules
